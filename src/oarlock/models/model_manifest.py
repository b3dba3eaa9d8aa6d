"""The manifest of an exported model: its inputs, its outputs, and where it came from. Pure.

It is one JSON file beside what the framework wrote; other servers ignore it. A folder may come from a
bucket or from another user, so `read` is the only way to get a manifest from a file's content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oarlock.run import typed
from oarlock.system.safe_names import stays_inside

FILE_NAME = "oarlock.json"
FORMATS = ("saved_model", "torch_export", "jax_export", "onnx", "python")
# NumPy's names, and `string` for UTF-8 text.
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "string"),
)
# What a person enters: the page draws a canvas, a text box or a form.
KINDS = ("tensor", "image", "text", "completion")
_DEEPEST = 16  # dimensions


class BadManifest(ValueError):
    """Not a manifest; says why."""


@dataclass(frozen=True)
class Tensor:
    """One input or output. A dimension of None can have any size; the first one counts the examples."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def is_batched(self) -> bool:
        """Whether several examples can go through the model together."""
        return bool(self.shape) and self.shape[0] is None

    def to_data(self) -> dict[str, Any]:
        """Plain data that `read` takes."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}


@dataclass(frozen=True)
class Manifest:
    """What one version of a model is."""

    format: str  # one of FORMATS
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    kind: str = "tensor"  # one of KINDS
    entry: str = ""  # format `python` only: the file in the folder that defines `load(folder)`
    labels: tuple[str, ...] = ()  # class names, if the output scores classes
    files: dict[str, str] = field(default_factory=dict)  # belonging to the model, such as a vocabulary: path
    frameworks: dict[str, str] = field(default_factory=dict)  # name: version
    run: str = ""
    step: int | None = None
    scores: dict[str, Any] = field(default_factory=dict)

    @property
    def is_batched(self) -> bool:
        """Whether several requests can go through the model together."""
        return bool(self.inputs) and all(one.is_batched for one in (*self.inputs, *self.outputs))

    def to_json(self) -> bytes:
        """The content of the file."""
        data = {
            "version": typed.VERSION,
            "format": self.format,
            "kind": self.kind,
            "inputs": [one.to_data() for one in self.inputs],
            "outputs": [one.to_data() for one in self.outputs],
            "entry": self.entry,
            "labels": list(self.labels),
            "files": dict(self.files),
            "frameworks": dict(self.frameworks),
            "run": self.run,
            "step": self.step,
            "scores": typed.plain(self.scores),
        }
        return json.dumps(data, indent=1).encode()


def read(content: bytes) -> Manifest:
    """Return the manifest in a file. Raises BadManifest."""
    try:
        data = json.loads(content)
        if not isinstance(data, dict):
            raise ValueError("it is not an object")
        typed.check_version(data)
        known = {name: data[name] for name in _PLAIN if name in data}
        found = typed.build(
            Manifest, known, inputs=_tensors(data, "inputs"), outputs=_tensors(data, "outputs")
        )
    except typed.LaterVersion as later:
        raise BadManifest(f"a later Oarlock wrote it ({later})") from None
    except (ValueError, RecursionError) as problem:
        raise BadManifest(f"its {FILE_NAME} is damaged: {problem}") from None
    _check(found)
    return found


_PLAIN = ("format", "kind", "entry", "labels", "files", "frameworks", "run", "step", "scores")


def _check(found: Manifest) -> None:
    if found.format not in FORMATS:
        raise BadManifest(f"its format is {found.format[:40]!r}; this Oarlock serves {', '.join(FORMATS)}")
    if found.kind not in KINDS:
        raise BadManifest(f"its kind is {found.kind[:40]!r}; this Oarlock knows {', '.join(KINDS)}")
    for name in (*found.files.values(), *([found.entry] if found.entry else [])):
        if not stays_inside(name):
            raise BadManifest(f"it names a file outside of its folder ({name[:80]!a})")


def _tensors(data: Mapping[str, Any], which: str) -> tuple[Tensor, ...]:
    listed = data.get(which, [])
    if not isinstance(listed, list):
        raise ValueError(f"{which} is not a list")
    found = tuple(_tensor(one, which) for one in listed)
    if len({one.name for one in found}) < len(found):
        raise ValueError(f"two {which} have the same name")
    return found


def _tensor(data: Any, which: str) -> Tensor:
    if not isinstance(data, dict) or not isinstance(data.get("name"), str) or not data["name"]:
        raise ValueError(f"one of its {which} has no name")
    name, dtype, shape = data["name"], data.get("dtype"), data.get("shape")
    if dtype not in DTYPES:
        raise ValueError(f"{name[:40]!r} has the type {str(dtype)[:40]!r}")
    if not isinstance(shape, list) or len(shape) > _DEEPEST or not all(map(_is_dimension, shape)):
        raise ValueError(f"{name[:40]!r} has the shape {str(shape)[:40]}")
    return Tensor(name, dtype, tuple(shape))


def _is_dimension(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)
