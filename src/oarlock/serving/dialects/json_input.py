"""Numbers and text from JSON, as arrays of a given type and number of dimensions. Pure.

Nothing is rounded, wrapped or guessed: ragged lists, 300 for a uint8 and 1.5 for an integer are refused.
`struct` checks types and ranges while it packs, as fast as `numpy.array` without checks.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from oarlock.models.model_manifest import DTYPES
from oarlock.serving.dialects.exchange import Refused

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

# "<": native values, and a float that is too large is an error.
_CODES = dict(zip(DTYPES, ("<?", "<b", "<h", "<i", "<q", "<B", "<H", "<I", "<Q", "<e", "<f", "<d")))
_TOKENS = (b"NaN", b"Infinity")
_LIST, _BOOL = {list}, {bool}
_SHOWN = 60  # characters of a value in a message


class Document:
    """A body of JSON. `has_bools` lets the common case skip a look at every value."""

    __slots__ = ("data", "has_bools")

    def __init__(self, body: bytes, *, takes_tokens: bool = False) -> None:
        """Raise Refused if it is not a JSON object. `takes_tokens`: NaN and Infinity are numbers."""
        data = _loaded(body, takes_tokens)
        if type(data) is not dict:
            raise Refused(400, f"the body is {said(data)}, and a JSON object is expected")
        self.data: dict[str, Any] = data
        # Searching for one letter of each is much faster, and neither is in {"instances": [...]}.
        self.has_bools = (b"r" in body and b"true" in body) or (b"l" in body and b"false" in body)

    def array(self, value: Any, dtype: str, rank: int, name: str) -> Array:
        """Return nested lists as an array. Raises Refused, which says what is wrong with `name`."""
        lists, shape = _opened(value, rank, name)
        flat: Iterable[Any] = chain.from_iterable(lists) if rank > 1 else lists
        count = 1
        for size in shape:
            count *= size
        if dtype == "string":
            return _text(list(flat), shape, name)
        code = _CODES[dtype]
        if dtype == "bool" or self.has_bools:
            flat = list(flat)
            _check_bools(flat, dtype, name)
        memory = bytearray(count * struct.calcsize(code))
        try:
            struct.pack_into(f"<{count}{code[1]}", memory, 0, *flat)
        except (struct.error, OverflowError):
            flat = chain.from_iterable(lists) if rank > 1 else lists
            raise Refused(400, _why(flat, code, dtype, name)) from None
        return np.frombuffer(memory, dtype).reshape(shape)


def said(value: Any) -> str:
    """A JSON value as text for a message."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _loaded(body: bytes, takes_tokens: bool) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        if not takes_tokens or not any(token in body for token in _TOKENS):
            raise Refused(400, f"the body is not JSON: {problem}") from None
    try:
        return json.loads(body)
    except RecursionError:
        raise Refused(400, "the body is nested too deep") from None
    except ValueError as problem:  # also not UTF-8, or a number of thousands of digits
        raise Refused(400, f"the body is not JSON: {problem}") from None


def _opened(value: Any, rank: int, name: str) -> tuple[Any, tuple[int, ...]]:
    """Return the innermost lists, and the shape."""
    if rank == 0:
        if type(value) is list:
            raise Refused(400, f"{name} is a list, and a single value is expected")
        return [value], ()
    if type(value) is not list:
        raise Refused(400, f"{name} is {said(value)}, and {_lists(rank)} expected")
    shape = [len(value)]
    for depth in range(1, rank):
        if depth > 1:
            value = list(chain.from_iterable(value))
        sizes = set(map(len, value)) if set(map(type, value)) == _LIST else set()
        if len(sizes) != 1:
            raise Refused(400, _ragged(value, rank, depth, name))
        shape += sizes
    return value, tuple(shape)


def _ragged(values: list[Any], rank: int, depth: int, name: str) -> str:
    if not values:
        return f"{name} is empty at depth {depth}"
    for value in values:
        if type(value) is not list:
            return f"{name} holds {said(value)} at depth {depth + 1}, and {_lists(rank)} expected"
    sizes = sorted(set(map(len, values)))
    return f"{name} is ragged: lists of {sizes[0]} and of {sizes[-1]} values are mixed"


def _lists(rank: int) -> str:
    return "a list is" if rank == 1 else f"lists of {rank} dimensions are"


def _check_bools(flat: list[Any], dtype: str, name: str) -> None:
    for value in flat:
        if (type(value) is bool) != (dtype == "bool"):
            raise Refused(400, f"{name} holds {said(value)}, and the model takes {dtype}")


def _why(flat: Iterable[Any], code: str, dtype: str, name: str) -> str:
    """Find the value that does not fit."""
    for value in flat:
        try:
            struct.pack(code, value)
        except (struct.error, OverflowError):
            is_number = type(value) in (int, float)
            fits = f"{said(value)}, which does not fit {dtype}" if is_number else said(value)
            return f"{name} holds {fits}" + ("" if is_number else f", and the model takes {dtype}")
    return f"{name} does not fit {dtype}"


def _text(flat: list[Any], shape: tuple[int, ...], name: str) -> Array:
    found = np.empty(len(flat), object)
    for place, value in enumerate(flat):
        if type(value) is str:
            found[place] = value
        elif type(value) is dict and value.keys() == {"b64"} and type(value["b64"]) is str:
            found[place] = _decoded(value["b64"], name)
        else:
            raise Refused(400, f"{name} holds {said(value)}, and the model takes text")
    return found.reshape(shape)


def _decoded(encoded: str, name: str) -> str | bytes:
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, f"{name} has a b64 that is not base64") from None
    return text_or_bytes(content)


def text_or_bytes(content: bytes) -> str | bytes:
    """Return text as str; bytes that are not UTF-8, such as an image file, stay bytes."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
