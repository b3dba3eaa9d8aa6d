"""The kinds of single value that a field can hold: how each is read, and its JSON schema. Pure.

A reader takes what was written, returns the value, and raises ValueError with the whole sentence. Lists and
mappings are in `compound_kinds`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oarlock.quantities import Duration, Replicas, Size
from oarlock.wording import listed, nearest, unexpected

_MILLICORES = "[0-9]{1,9}m"


@dataclass(frozen=True)
class Kind:
    """How a value is read, and the JSON schema of what may be written."""

    read: Callable[[Any], Any]
    schema: dict[str, Any]
    # Whether numbers and booleans inside stay as they are written: `LR: 1e-3` in `env` is 1e-3, not 0.001.
    keeps_text: bool = False


def whole(least: int = 0, most: int | None = None) -> Kind:
    """A whole number from `least` to `most`."""

    def read(written: Any) -> int:
        if isinstance(written, bool) or not isinstance(written, int):
            raise unexpected("a whole number", written)
        if written < least:
            raise unexpected(f"{least} or more", written)
        if most is not None and written > most:
            raise unexpected(f"at most {most}", written)
        return written

    bounds = {"minimum": least} if most is None else {"minimum": least, "maximum": most}
    return Kind(read, {"type": "integer", **bounds})


def cores() -> Kind:
    """CPU cores: `2`, `0.5`, or Kubernetes' `500m`."""
    expected = "a number of cores such as 2, 0.5 or 500m"

    def read(written: Any) -> float:
        if isinstance(written, str) and re.fullmatch(_MILLICORES, written):
            written = int(written[:-1]) / 1000
        if isinstance(written, bool) or not isinstance(written, (int, float)):
            raise unexpected(expected, written)
        if not 0.001 <= written <= 10_000:
            raise unexpected("between 0.001 and 10000 cores", written)
        return float(written)

    return Kind(
        read,
        {
            "anyOf": [
                {"type": "number", "minimum": 0.001, "maximum": 10_000},
                matching(_MILLICORES),
            ]
        },
    )


def flag() -> Kind:
    """True or false."""

    def read(written: Any) -> bool:
        if not isinstance(written, bool):
            raise unexpected("true or false", written)
        return written

    return Kind(read, {"type": "boolean"})


def text(
    expected: str, pattern: str = "", hint: Callable[[str], str] = lambda written: "", least: int = 1
) -> Kind:
    """Text of at least `least` characters that matches the pattern, if there is one, from end to end."""

    def read(written: Any) -> str:
        if not isinstance(written, str) or len(written) < least or not is_passable(written):
            raise unexpected(expected, written)
        if pattern and not re.fullmatch(pattern, written):
            raise unexpected(expected, written, hint(written))
        return written

    return Kind(read, matching(pattern) if pattern else {"type": "string", "minLength": least})


def bucket(*schemes: str) -> Kind:
    """A folder, or the URL of a bucket and a path in it, without credentials."""
    expected = f"a folder, or a URL such as {schemes[0]}://bucket/folder ({listed(schemes)})"
    pattern = rf"(?:{'|'.join(schemes)})://[^/@?#\s]+(?:/[^@?#\s]*)?|(?!.*://).+"

    def read(written: Any) -> str:
        if not isinstance(written, str) or not written or not is_passable(written):
            raise unexpected(expected, written)
        if "://" in written and re.search("[@?]", written):  # the message does not repeat it
            raise ValueError("a URL here holds no credentials; they are taken from the environment")
        if not re.fullmatch(pattern, written):
            raise unexpected(expected, written)
        return written

    return Kind(read, matching(pattern))


def bucket_at_step(*schemes: str) -> Kind:
    """A folder or a bucket, perhaps with the number of a step after an @."""
    place = bucket(*schemes)

    def read(written: Any) -> str:
        place.read(re.sub("@[0-9]{1,18}$", "", written) if isinstance(written, str) else written)
        return str(written)

    return Kind(
        read, matching(rf"(?:{'|'.join(schemes)})://[^/@?#\s]+(?:/[^@?#\s]*)?(?:@[0-9]{{1,18}})?|(?!.*://).+")
    )


def choice(*names: str) -> Kind:
    """One of the names."""

    def read(written: Any) -> str:
        if isinstance(written, str) and written in names:
            return written
        near = nearest(written, names) if isinstance(written, str) else None
        raise unexpected(listed(names), written, f"did you mean {near}?" if near else "")

    return Kind(read, {"type": "string", "enum": list(names)})


def either(word: str, kind: Kind, expected: str) -> Kind:
    """A special word, or what the kind reads."""

    def read(written: Any) -> Any:
        if written == word:
            return written
        if isinstance(written, str):
            raise unexpected(expected, written, f"did you mean {word}?" if nearest(written, [word]) else "")
        return kind.read(written)

    return Kind(read, {"anyOf": [kind.schema, {"type": "string", "enum": [word]}]})


def duration(least: str = "0s", or_none: bool = False) -> Kind:
    """A length of time of at least `least`; with `or_none`, `none` reads as None."""
    shortest = Duration.parse(least)
    return _limited(Duration, least, {"type": "number", "minimum": shortest.seconds}, or_none)


def flag_or_duration(least: str) -> Kind:
    """True, false, or a length of time of at least `least`."""
    shortest = duration(least)

    def read(written: Any) -> bool | Duration:
        if isinstance(written, bool):
            return written
        try:
            return Duration.parse(shortest.read(written))
        except ValueError:
            raise unexpected(f"true, false or {Duration.EXPECTED}", written) from None

    return Kind(read, {"anyOf": [{"type": "boolean"}, *shortest.schema["anyOf"]]})


def size(least: str = "1", or_none: bool = False) -> Kind:
    """A number of bytes of at least `least`; with `or_none`, `none` reads as None."""
    smallest = Size.parse(least)
    return _limited(Size, least, {"type": "integer", "minimum": smallest.bytes}, or_none)


def _limited(
    quantity: type[Duration] | type[Size], least: str, number: dict[str, Any], or_none: bool
) -> Kind:
    limit: Any = quantity.parse(least)

    def read(written: Any) -> Duration | Size | None:
        if or_none and isinstance(written, str) and written.lower() == "none":
            return None
        found = quantity.parse(written)
        if found < limit:
            raise unexpected(f"{least} or more", written, "write none for no limit" if or_none else "")
        return found

    forms = [number, matching(quantity.PATTERN)]
    return Kind(read, {"anyOf": [*forms, matching("[Nn][Oo][Nn][Ee]")] if or_none else forms})


def replicas() -> Kind:
    """A number of replicas, or `min..max`."""
    return Kind(Replicas.parse, {"anyOf": [{"type": "integer", "minimum": 1}, matching(Replicas.PATTERN)]})


def matching(pattern: str) -> dict[str, Any]:
    """The JSON schema of text that matches a pattern from end to end."""
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def is_passable(written: str) -> bool:
    """Whether a process can have the text in its arguments or environment: no NUL, no half surrogate pair."""
    return "\0" not in written and not any("\ud800" <= c <= "\udfff" for c in written)
