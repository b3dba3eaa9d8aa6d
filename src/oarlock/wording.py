"""How messages describe a wrong value. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

LONGEST_SHOWN = 40


def unexpected(expected: str, found: Any, hint: str = "") -> ValueError:
    """The error for a wrong value: what was expected, what was found, and perhaps what to do."""
    return ValueError(f"expected {expected}, found {show(found)}" + (f"; {hint}" if hint else ""))


def show(value: Any) -> str:
    """The value as a message shows it: on one line, short, text in quotes."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _cut(str(value))
    if isinstance(value, str):
        return '"' + _cut(printable(value)) + '"'
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return f"a {type(value).__name__}"


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that was probably meant, if one is close enough."""
    import difflib  # costs 3 ms, and most calls of Oarlock never need it

    lowered = {known.lower(): known for known in names}
    found = difflib.get_close_matches(name.lower(), lowered, 1, cutoff)
    return lowered[found[0]] if found else None


def listed(names: Iterable[str], last: str = "or") -> str:
    """The names in words: `a, b or c`."""
    *most, final = names
    return f"{', '.join(most)} {last} {final}" if most else final


def printable(text: str) -> str:
    """The text with newlines, control characters and lone surrogates escaped: one line of valid UTF-8."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:200])


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
