"""Tensors as bytes, in the format of the Open Inference Protocol's binary tensor extension. Pure.

Little-endian, row by row, without gaps. A text is its length in four bytes, then its UTF-8.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from oarlock.serving.dialects.exchange import Refused
from oarlock.serving.dialects.json_input import text_or_bytes

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array


def read(content: memoryview, dtype: str, shape: tuple[int, ...], name: str) -> Array:
    """Return an array of this type and shape. Raises Refused if the bytes do not fit."""
    count = 1
    for size in shape:
        count *= size
    if dtype == "string":
        return _read_text(content, count, name).reshape(shape)
    expected = count * np.dtype(dtype).itemsize
    if len(content) != expected:
        raise Refused(400, f"{name!r} has {len(content)} bytes; {list(shape)} of {dtype} takes {expected}")
    # A copy: the body is neither aligned nor writable, and some runtimes need both.
    array = np.frombuffer(content, np.dtype(dtype).newbyteorder("<")).reshape(shape).astype(dtype, copy=True)
    if dtype == "bool" and np.frombuffer(content, np.uint8).max(initial=0) > 1:
        raise Refused(400, f"{name!r} has bytes that are neither 0 nor 1")
    return array


def write(array: Array) -> bytes:
    """Return the bytes of an array."""
    if array.dtype.kind not in "OSU":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    texts = [one if isinstance(one, bytes) else str(one).encode() for one in array.ravel().tolist()]
    return b"".join(struct.pack("<I", len(one)) + one for one in texts)


def _read_text(content: memoryview, count: int, name: str) -> Array:
    if count * 4 > len(content):
        raise Refused(400, f"{name!r} has {len(content)} bytes, too few for {count} texts")
    found = np.empty(count, object)
    at = 0
    for place in range(count):
        end = at + 4
        if end <= len(content):
            end += struct.unpack_from("<I", content, at)[0]
        if end > len(content) or at + 4 > len(content):
            raise Refused(400, f"{name!r} ends in the middle of text {place + 1} of {count}")
        found[place] = text_or_bytes(bytes(content[at + 4 : end]))
        at = end
    if at != len(content):
        raise Refused(400, f"{name!r} has {len(content) - at} bytes after its last text")
    return found
