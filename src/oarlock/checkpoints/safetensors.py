"""The file format of tensors: safetensors, which every framework's tools can open.

Eight bytes with the length of a JSON header, the header, then the tensors one after another. The format is
simple enough to write without a framework, and a reader maps the file into memory instead of copying it.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The name that NumPy, torch and JAX share -> the file's name for it, and the bytes per number.
_TYPES = {
    "float64": ("F64", 8),
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "complex128": ("C128", 16),
    "complex64": ("C64", 8),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint64": ("U64", 8),
    "uint32": ("U32", 4),
    "uint16": ("U16", 2),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
}
_NAMES = {code: name for name, (code, _) in _TYPES.items()}
_METADATA = "oarlock"  # the key of our part of the header's metadata


@dataclass(frozen=True)
class Shape:
    """A tensor's type and size. `whole` and `at`: it is part of a larger tensor and begins there."""

    dtype: str  # as NumPy names it
    size: tuple[int, ...]
    whole: tuple[int, ...] | None = None
    at: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.size)

    @property
    def width(self) -> int:
        """Bytes of one number."""
        return _TYPES[self.dtype][1]

    @property
    def bytes(self) -> int:
        """Bytes of the tensor."""
        return self.count * self.width


def is_known(dtype: str) -> bool:
    """Whether the format has this type, by its NumPy name."""
    return dtype in _TYPES


def places(shapes: Mapping[str, Shape]) -> dict[str, tuple[int, int]]:
    """Where each tensor begins and ends. Wide numbers come first, so all are aligned without gaps."""
    ordered = sorted(shapes, key=lambda name: (-shapes[name].width, name))
    offsets, at = {}, 0
    for name in ordered:
        offsets[name] = (at, at + shapes[name].bytes)
        at = offsets[name][1]
    return offsets


def header(shapes: Mapping[str, Shape], tree: Any) -> bytes:
    """The bytes before the tensors; `tree` describes how the tensors make up the program's objects."""
    parts = {name: [shape.whole, shape.at] for name, shape in shapes.items() if shape.whole is not None}
    entries: dict[str, Any] = {"__metadata__": {_METADATA: json.dumps({"tree": tree, "parts": parts})}}
    for name, (begin, end) in places(shapes).items():
        shape = shapes[name]
        entries[name] = {"dtype": _TYPES[shape.dtype][0], "shape": shape.size, "data_offsets": (begin, end)}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)  # aligns the first tensor
    return (len(text)).to_bytes(8, "little") + text


class TensorFile:
    """A safetensors file mapped into memory. Its pages are private: changing a tensor changes no file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(length))
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._begin = 8 + length
        ours = json.loads(entries.pop("__metadata__")[_METADATA])
        self.tree = ours["tree"]
        self.shapes: dict[str, Shape] = {}
        self._offsets: dict[str, Sequence[int]] = {}
        for name, entry in entries.items():
            whole, at = ours["parts"].get(name, (None, None))
            self.shapes[name] = Shape(
                _NAMES[entry["dtype"]],
                tuple(entry["shape"]),
                None if whole is None else tuple(whole),
                None if at is None else tuple(at),
            )
            self._offsets[name] = entry["data_offsets"]

    def bytes_of(self, name: str) -> memoryview:
        """Return the bytes of a tensor without copying them."""
        begin, end = self._offsets[name]
        return memoryview(self._map)[self._begin + begin : self._begin + end]
