"""Checks values from outside: what the fields of an event or a record may be. Pure; travels into pods.

A check returns the value to keep, or None if it makes no sense. Only `build` and `check_version` raise, and
only ValueError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

VERSION = 1  # of records, specs and events; older ones have no number, and the same format
LONGEST = 10_000  # characters in a text
_DEEPEST = 16  # how deep values may be nested
_LARGEST = 2**63 - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # a valid file name

Check = Callable[[Any], Any]
_T = TypeVar("_T")


class LaterVersion(ValueError):
    """The data is from a later Oarlock, in a format that this one does not know."""


def check_version(data: Mapping[str, Any]) -> None:
    """Raises LaterVersion. Unknown fields need no new number: a new one means that known fields changed."""
    version = whole(1)(data.get("version", VERSION))
    if version is None:
        raise ValueError(f"its version is {str(data['version'])[:40]!r}")
    if version > VERSION:
        raise LaterVersion(f"record version {version}, this one reads up to {VERSION}")


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and not a bool."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def number(least: float = -_LARGEST, most: float = _LARGEST) -> Check:
    """Check for a finite number within bounds."""

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return value if least <= value <= most else None  # nan is neither

    return check


def whole(least: int = -_LARGEST, most: int = _LARGEST) -> Check:
    """Check for a whole number. A program may report step 3.0, or 3.7: both count as 3."""
    inside = number(least, most)

    def check(value: Any) -> int | None:
        return None if inside(value) is None else int(value)

    return check


def text(value: Any) -> str | None:
    """Check for text."""
    return plain(value) if isinstance(value, str) else None


def flag(value: Any) -> bool | None:
    """Check for true or false."""
    return value if isinstance(value, bool) else None


def word(value: Any) -> str | None:
    """Check for the name of a task or an agent, which is also a file name of its logs."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def several(check: Check, most: int = 100_000) -> Check:
    """Check for a list whose items pass `check`."""

    def check_all(value: Any) -> list[Any] | None:
        if not isinstance(value, list) or len(value) > most:
            return None
        checked = [check(one) for one in value]
        return None if None in checked else checked

    return check_all


def plain(value: Any, depth: int = 0) -> Any:
    """Keep what JSON and UTF-8 can express. Numbers that JSON does not know (nan, inf) become text."""
    if isinstance(value, str):
        value = value.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair has no UTF-8
        return value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST else "too large"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth == _DEEPEST:
        return "too deep"
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    return value


def build(kind: type[_T], data: Any, **given: Any) -> _T:
    """Make a dataclass from a JSON object. Fields that this version does not know are left out."""
    if not isinstance(data, Mapping):
        raise ValueError(f"not a {kind.__name__}: {str(data)[:40]!r}")
    known: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in given:
            continue
        if field.name in data:
            known[field.name] = _typed(f"{kind.__name__}.{field.name}", str(field.type), data[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{kind.__name__} without {field.name}")
    return kind(**known, **given)


def _typed(what: str, kind: str, value: Any) -> Any:
    kind, _, optional = kind.partition(" | ")
    if value is None and optional:
        return None
    checked = _KINDS[kind](value)
    if checked is None:
        raise ValueError(f"{what} is {str(value)[:40]!r}")
    return checked


def _as_tuple(check: Check) -> Check:
    checked_list = several(check)

    def check_all(value: Any) -> tuple[Any, ...] | None:
        checked = checked_list(value)
        return None if checked is None else tuple(checked)

    return check_all


def _mapping(check: Check) -> Check:
    def check_all(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            return None
        checked = {str(key): check(item) for key, item in value.items()}
        return None if None in checked.values() else checked

    return check_all


def _any_mapping(value: Any) -> dict[str, Any] | None:
    return plain(value) if isinstance(value, Mapping) else None


def _any_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_KINDS: dict[str, Check] = {
    "str": _any_text,
    "int": whole(),
    "float": number(-1e300, 1e300),
    "bool": flag,
    "list[str]": several(_any_text),
    "tuple[str, ...]": _as_tuple(_any_text),
    "tuple[int, ...]": _as_tuple(whole()),
    "list[list[int]]": several(several(whole())),
    "dict[str, str]": _mapping(_any_text),
    "dict[str, int]": _mapping(whole()),
    "dict[str, list[str]]": _mapping(several(_any_text)),
    "dict[str, list[int]]": _mapping(several(whole(1))),
    "dict[str, Any]": _any_mapping,
    "Any": lambda value: value,
}
