"""The text: `load()` returns the bytes to train on and the bytes held out, and gathers them the first time.

By default it uses documentation that is already on this machine, so nothing is downloaded: Python's own
(`help("for")` shows some of it) and that of the installed packages, up to 4 MB. A bare Python has 1.7 MB. Or
name your own text, by path or URL. Machines with other packages have other text: each notes a checksum.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import re
import sys
import sysconfig
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import oarlock

MOST = 4_000_000  # bytes
MOST_OF_A_PACKAGE = 100_000  # so that a large one does not drown out the others
MOST_HELD_OUT = 65_536  # or a twentieth, if that is less


class Text(NamedTuple):
    train: np.ndarray
    held_out: np.ndarray
    about: str


def load(source: str | None = None) -> Text:
    """The text as bytes (uint8); `source` is a path or URL."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}" if source is None else digest(source)
    # Workers on one machine share DATA_DIR: the first gathers, the others wait, and the next run finds it.
    folder = oarlock.data.once(oarlock.current().data / f"text-{name}", lambda folder: ingest(folder, source))
    text = np.memmap(folder / "text.bin", dtype=np.uint8, mode="r")
    held_out = min(len(text) // 20, MOST_HELD_OUT)
    meta = json.loads((folder / "meta.json").read_text())
    about = f"{meta['bytes']:,} bytes of text, checksum {meta['checksum']}"
    oarlock.current().note(about)  # in the run's record: the same on every machine, or they differ
    return Text(text[:-held_out], text[-held_out:], about)


def load_tokens(path: str) -> Text:
    """The same for a file of 16-bit token numbers, the format that many language model trainers prepare."""
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    held_out = min(len(tokens) // 20, MOST_HELD_OUT)
    return Text(tokens[:-held_out], tokens[-held_out:], f"{len(tokens):,} tokens of {path}")


def windows(text: np.ndarray, size: int, numbers: Sequence[int]) -> np.ndarray:
    """The windows with these numbers, one per row: `size` bytes and the byte that follows them."""
    return text[np.asarray(numbers)[:, None] * size + np.arange(size + 1)]


def count_windows(text: np.ndarray, size: int) -> int:
    return (len(text) - 1) // size


def ingest(folder: Path, source: str | None = None) -> None:
    """Store the text in `folder`: its bytes, and a description of them."""
    text = documentation() if source is None else fetch(source)
    if len(text) < 20_000:
        raise SystemExit(f"{len(text)} bytes of text are too few to train on; name a longer one with --data.")
    (folder / "text.bin").write_bytes(text)
    about = {"bytes": len(text), "checksum": digest(text), "from": source or "documentation"}
    (folder / "meta.json").write_text(json.dumps(about) + "\n")


def digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:8]


def fetch(source: str) -> bytes:
    try:
        if "://" not in source:
            return Path(source).read_bytes()
        with urllib.request.urlopen(source, timeout=60) as answer:
            return answer.read()
    except OSError as error:
        raise SystemExit(f"The text could not be read from {source}: {error}") from None


def documentation() -> bytes:
    """Python's own, then the packages' by name, until there is enough."""
    found: dict[bytes, None] = {}  # a dict, because the same text often occurs in several places
    size = 0
    for document in map(clean, chain(language_reference(), standard_library(), packages())):
        if document and document not in found:
            found[document] = None
            size += len(document)
        if size >= MOST:
            break
    # By checksum: an order that is reproducible and leaves some of everything for the end, which is
    # held out.
    ordered = sorted(found, key=digest)
    return b"\n\n".join(ordered) + b"\n"


def language_reference() -> list[str]:
    """What help() shows about the language itself: 79 chapters of prose."""
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some images leave it out
        return []
    return [topics[name] for name in sorted(topics)]


def standard_library() -> Iterator[str]:
    folder = Path(sysconfig.get_path("stdlib"))
    left_out = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"}
    for path in sorted(folder.rglob("*.py")):
        if not left_out.intersection(path.relative_to(folder).parts):
            yield docstrings(path)


def packages() -> Iterator[str]:
    """For each package, the text of its PyPI page, then its docstrings."""
    by_name = {
        str(package.metadata["Name"]).lower(): package for package in importlib.metadata.distributions()
    }
    for _, package in sorted(by_name.items()):
        metadata: Any = package.metadata
        documents = chain([metadata.get_payload() or metadata["Description"] or ""], of_files(package))
        size = 0
        for document in documents:
            yield document[:MOST_OF_A_PACKAGE]
            size += len(document)
            if size >= MOST_OF_A_PACKAGE:
                break


def of_files(package: importlib.metadata.Distribution) -> Iterator[str]:
    for file in sorted(package.files or [], key=str):
        path = Path(str(package.locate_file(file)))
        if "test" in str(file) or not path.is_file():
            continue
        if path.suffix == ".py":
            yield docstrings(path)
        elif path.suffix in (".md", ".rst") and "license" not in str(file).lower():
            yield path.read_text(errors="replace")


def docstrings(path: Path) -> str:
    """The docstrings in a Python file that are longer than a line or two. The file is read, never run."""
    try:
        with warnings.catch_warnings():  # an invalid escape in a package's file is not our concern
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(text for text in found if len(text) > 200)


def clean(text: str) -> bytes:
    """UTF-8 without tabs, control characters, trailing spaces and repeated empty lines."""
    lines = [re.sub(r"[^\x20-\x7e\xa0-\uffff]", "", line).rstrip() for line in text.expandtabs().splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip().encode(errors="ignore")
