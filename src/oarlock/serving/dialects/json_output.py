"""Arrays as JSON. Pure."""

from __future__ import annotations

import base64
import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
_TEXT = "OSU"  # kinds of arrays


class NotJson(ValueError):
    """JSON cannot represent a value: NaN, an infinity, bytes that are not text."""


def strict(array: Array) -> bytes:
    """Write an array as standard JSON. Raises NotJson."""
    if array.dtype.kind in _TEXT:
        return orjson.dumps([_as_text(one) for one in array.ravel().tolist()])
    written = _numbers(array)
    # orjson writes NaN and infinities as null, and nothing else in an array of numbers.
    if b"null" in written:
        raise NotJson("NaN or an infinity")
    return written


def with_tokens(array: Array, *, is_binary: bool = False) -> bytes:
    """Write an array as TensorFlow Serving does: NaN and Infinity as such, bytes as {"b64": ...}."""
    if array.dtype.kind in _TEXT:
        return json.dumps(_nested_text(array, is_binary), ensure_ascii=False).encode("utf-8", "replace")
    written = _numbers(array)
    return _with_tokens(written, array) if b"null" in written else written


def rows_with_tokens(outputs: dict[str, Array]) -> bytes:
    """Write several outputs row by row: [{"a": ..., "b": ...}, ...]."""
    columns = []
    for name, array in outputs.items():
        key = json.dumps(name).encode() + b": "
        is_binary = name.endswith("_bytes")
        columns.append([key + with_tokens(array[row, ...], is_binary=is_binary) for row in range(len(array))])
    return b"[" + b", ".join(b"{" + b", ".join(row) + b"}" for row in zip(*columns)) + b"]"


def columns_with_tokens(outputs: dict[str, Array]) -> bytes:
    """Write outputs by column: {"a": ..., "b": ...}, or the array alone if there is one."""
    written = {name: with_tokens(one, is_binary=name.endswith("_bytes")) for name, one in outputs.items()}
    if len(written) == 1:
        return next(iter(written.values()))
    return b"{" + b", ".join(json.dumps(name).encode() + b": " + one for name, one in written.items()) + b"}"


def plain(data: Any) -> bytes:
    """Write plain data, NaN and Infinity as such."""
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")


def _numbers(array: Array) -> bytes:
    if array.ndim == 0:
        return orjson.dumps(array[()], option=_OPTIONS)
    if not array.flags.c_contiguous or not array.dtype.isnative:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return orjson.dumps(array, option=_OPTIONS)


def _with_tokens(written: bytes, array: Array) -> bytes:
    numbers = np.ravel(array)
    tokens = [json.dumps(one).encode() for one in numbers[~np.isfinite(numbers)].tolist()]
    parts = written.split(b"null")
    return b"".join(chain.from_iterable(zip(parts, tokens))) + parts[-1]


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise NotJson("bytes that are not text") from None
    return str(value)


def _nested_text(value: Any, is_binary: bool) -> Any:
    if isinstance(value, np.ndarray):
        return _nested_text(value.tolist(), is_binary)
    if isinstance(value, list):
        return [_nested_text(one, is_binary) for one in value]
    if is_binary:
        content = value if isinstance(value, bytes) else str(value).encode()
        return {"b64": base64.b64encode(content).decode()}
    try:
        return _as_text(value)
    except NotJson:
        return _nested_text(value, True)
