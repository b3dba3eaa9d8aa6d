"""Turn what a user types or pipes into examples: values that fit the inputs of a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from oarlock.errors import OarlockError

_PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"}
_TEXTS = {".txt", ".md"}


@dataclass(frozen=True)
class ModelInput:
    """One input of the model, without the dimension that counts examples."""

    name: str
    dtype: str  # as in the manifest
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        sizes = " x ".join("any" if size is None else str(size) for size in self.shape)
        return f"{self.name} ({self.dtype}{f', {sizes}' if sizes else ''})"


@dataclass(frozen=True)
class Example:
    """One example: where it is from, and a value for each input of the model."""

    source: str
    values: Mapping[str, Any]


def read(words: Sequence[str], inputs: Sequence[ModelInput]) -> Iterator[Example]:
    """Yield the examples that the words name or are; without words, those on standard input.

    A word is a file, a folder of files, `-`, or the value itself. Raises OarlockError for one that makes no
    sense, with what the model expects.
    """
    for word in words or ("-",):
        if word == "-":
            yield from _of_lines("standard input", _standard_input(), inputs)
        elif _is_path(word):
            yield from _of_path(Path(word), inputs)
        else:
            yield _of_word(word, inputs)


def _standard_input() -> TextIO:
    """Open standard input again: Python cannot exit while a thread waits for a line of `sys.stdin`."""
    try:
        return open(sys.stdin.fileno(), encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)
    except (OSError, ValueError):
        return sys.stdin  # it is not a file


def _is_path(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # too long for a name, or with a zero byte: a value
        return False


def _of_path(path: Path, inputs: Sequence[ModelInput]) -> Iterator[Example]:
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
        if not files:
            raise OarlockError(f"{path} has no files")
        for file in files:
            yield from _of_path(file, inputs)
        return
    kind = path.suffix.lower()
    try:
        if kind in _PICTURES:
            yield Example(str(path), {_only(inputs, path).name: _picture(path, _only(inputs, path))})
        elif kind == ".npy":
            yield from _of_array(path, inputs)
        elif kind == ".json":
            yield from _of_json(str(path), path.read_text(), inputs)
        elif kind in _TEXTS and _takes_text(inputs):
            yield _fitting(str(path), path.read_text(), inputs)
        else:
            with path.open(encoding="utf-8") as lines:
                yield from _of_lines(str(path), lines, inputs)
    except UnicodeDecodeError:
        raise OarlockError(
            f"{path} is not text; expected JSON, JSON lines, .npy or a picture for {_listed(inputs)}"
        ) from None
    except OSError as problem:
        raise OarlockError(f"{path}: {problem.strerror or problem}") from None


def _of_word(word: str, inputs: Sequence[ModelInput]) -> Example:
    if _takes_text(inputs) and not word.lstrip().startswith("{"):
        return _fitting(word, word, inputs)
    try:
        return _fitting(word, json.loads(word), inputs)
    except ValueError:
        raise OarlockError(
            f"{word[:60]!r} is neither a file nor JSON; the model expects {_listed(inputs)}"
        ) from None


def _of_lines(source: str, lines: Iterable[str], inputs: Sequence[ModelInput]) -> Iterator[Example]:
    """A line is an example: JSON, or the text itself for a model that takes text."""
    for number, line in enumerate(lines, 1):
        where = f"{source}:{number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            if not _takes_text(inputs):
                raise OarlockError(
                    f"{where} is not JSON; a line is one example for {_listed(inputs)}"
                ) from None
            value = line.rstrip("\n")
        yield _fitting(where, value, inputs)


def _of_json(source: str, text: str, inputs: Sequence[ModelInput]) -> Iterator[Example]:
    """A request as TensorFlow Serving takes it (`instances`), a list of examples, or one example."""
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise OarlockError(f"{source} is not JSON: {problem}") from None
    if isinstance(value, dict) and "instances" in value:
        value = value["instances"]
    deepest = min((len(one.shape) for one in inputs), default=0)
    if isinstance(value, list) and (len(inputs) > 1 or _depth(value) > deepest or _takes_text(inputs)):
        for number, row in enumerate(value, 1):
            yield _fitting(f"{source}:{number}", row, inputs)
    else:
        yield _fitting(source, value, inputs)


def _of_array(path: Path, inputs: Sequence[ModelInput]) -> Iterator[Example]:
    """The rows of an array, or one row."""
    only = _only(inputs, path)
    try:
        import numpy as np

        rows = np.load(path, allow_pickle=False)
    except ImportError:
        raise OarlockError(f"{path} needs NumPy: pip install numpy") from None
    except ValueError as problem:
        raise OarlockError(f"{path} is not an array: {problem}") from None
    if rows.ndim <= len(only.shape):
        rows = rows[None]
    for number, row in enumerate(rows, 1):
        yield Example(f"{path}:{number}", {only.name: row.tolist()})


def _picture(path: Path, tensor: ModelInput) -> Any:
    """The pixels of a picture, in the size, colors and range that the input has."""
    is_flat = len(tensor.shape) == 2
    if not is_flat and (len(tensor.shape) != 3 or tensor.shape[2] not in (1, 3)):
        raise OarlockError(f"{path} is a picture, and the model expects {tensor}")
    try:
        import numpy as np
        from PIL import Image
    except ImportError:
        raise OarlockError("pictures need Pillow and NumPy: pip install pillow numpy") from None
    is_gray = is_flat or tensor.shape[2] == 1
    try:
        with Image.open(path) as opened:
            picture = opened.convert("L" if is_gray else "RGB")
    except OSError as problem:
        raise OarlockError(f"{path} is not a picture: {problem}") from None
    height, width = tensor.shape[0] or picture.height, tensor.shape[1] or picture.width
    pixels = np.asarray(picture.resize((width, height)))
    pixels = pixels if is_flat else pixels.reshape(height, width, -1)
    # Models of whole numbers mostly take 0 to 255, those of fractions 0 to 1.
    return (pixels / 255).tolist() if tensor.dtype.startswith("float") else pixels.tolist()


def _fitting(source: str, value: Any, inputs: Sequence[ModelInput]) -> Example:
    """A mapping names the inputs; any other value is for the only input."""
    names = [one.name for one in inputs]
    if isinstance(value, dict) and value.keys() == set(names):
        return Example(source, value)
    if isinstance(value, dict) or len(inputs) != 1:
        raise OarlockError(f"{source}: expected a JSON object with {_listed(inputs)}")
    return Example(source, {names[0]: value})


def _only(inputs: Sequence[ModelInput], path: Path) -> ModelInput:
    if len(inputs) != 1:
        raise OarlockError(f"{path} has one value, and the model expects {_listed(inputs)}")
    return inputs[0]


def _takes_text(inputs: Sequence[ModelInput]) -> bool:
    return len(inputs) == 1 and inputs[0].dtype == "string"


def _listed(inputs: Sequence[ModelInput]) -> str:
    return ", ".join(map(str, inputs))


def _depth(value: Any) -> int:
    depth = 0
    while isinstance(value, list) and value:
        depth, value = depth + 1, value[0]
    return depth
