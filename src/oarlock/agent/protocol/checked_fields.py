"""Checks the fields of a message from outside: what each function returns has its type. Pure.

Every function raises WireError for a value of another type or out of bounds. The error names a kind of
mistake and never repeats the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from oarlock.agent.protocol.wire import Message, WireError

MOST = 2**53  # the largest whole number: what JSON and a float hold exactly
MANY = 10_000  # entries in one list or object
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}", re.ASCII)
FOLDER = re.compile(r"[0-9a-f]{16}", re.ASCII)  # a hash of its path
_TEXT = 16 * 1024  # characters

T = TypeVar("T")


def json_object(value: Any, what: str, most: int = MANY) -> Message:
    """An object with at most `most` entries. `what` names it in the error."""
    if not isinstance(value, dict) or len(value) > most:
        raise WireError(f"{what}: not an object")
    return value


def json_list(value: Any, what: str, most: int = MANY) -> list[Any]:
    """A list with at most `most` entries. `what` names it in the error."""
    if not isinstance(value, list) or len(value) > most:
        raise WireError(f"{what}: not a list")
    return value


def text(data: Message, name: str, form: re.Pattern[str] = NAME) -> str:
    """The field as text, which has to match `form` completely."""
    value = data.get(name)
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise WireError(f"a message without a proper {name}")
    return value


def name_of(value: Any) -> str:
    """The name of a task, a role or an agent."""
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise WireError("not a valid name")
    return value


def names(value: Any, what: str) -> list[str]:
    """A list of names. `what` names it in the error."""
    return [name_of(name) for name in json_list(value, what)]


def folders(value: Any) -> frozenset[str]:
    """The hashes of folders."""
    found = json_list(value, "folders")
    if not all(isinstance(one, str) and FOLDER.fullmatch(one) for one in found):
        raise WireError("not valid folder hashes")
    return frozenset(found)


def counts(value: Any, what: str) -> dict[str, int]:
    """A number for each name."""
    found = json_object(value, what)
    if not all(type(count) is int and 0 <= count <= MOST for count in found.values()):
        raise WireError(f"{what}: not a table of counts")
    return {name_of(name): count for name, count in found.items()}


def free_text(value: Any) -> str | None:
    """Text of bounded length, or None. Half a surrogate pair has no UTF-8, so it is replaced."""
    return value[:_TEXT].encode("utf-8", "replace").decode() if isinstance(value, str) else None


def flag(data: Message, name: str) -> bool:
    """The field as true or false; a number is neither."""
    value = data.get(name)
    if not isinstance(value, bool):
        raise WireError(f"a message without a proper {name}")
    return value


def whole(data: Message, name: str) -> int:
    """The field as an integer from 0 to MOST."""
    value = data.get(name)
    if type(value) is not int or not 0 <= value <= MOST:
        raise WireError(f"a message without a proper {name}")
    return value


def integer(data: Message, name: str) -> int:
    """The field as an integer from -MOST to MOST."""
    value = data.get(name)
    if type(value) is not int or not -MOST <= value <= MOST:
        raise WireError(f"a message without a proper {name}")
    return value


def step(data: Message) -> int | None:
    """The field `step`, which must be present. None means outside any loop."""
    return None if data.get("step", "missing") is None else integer(data, "step")


def exit_code(data: Message, name: str) -> int:
    """An exit code as a shell shows it, 0 to 255."""
    value = whole(data, name)
    if value > 255:
        raise WireError(f"a message without a proper {name}")
    return value


def number(data: Message, name: str) -> float:
    """The field as a finite number from -MOST to MOST."""
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST:  # nan
        raise WireError(f"a message without a proper {name}")
    return float(value)


def optional(data: Message, name: str, read: Callable[[Message, str], T]) -> T | None:
    """None if the field is missing or null. A wrong value still raises."""
    return None if data.get(name) is None else read(data, name)


def or_none(data: Message, name: str, read: Callable[[Message, str], T]) -> T | None:
    """None if the field is missing or wrong."""
    try:
        return read(data, name)
    except WireError:
        return None
