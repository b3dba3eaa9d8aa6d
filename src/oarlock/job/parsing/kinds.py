"""The kinds of value that a field can hold: how each is read, and its JSON schema. Pure.

A reader takes what was written, returns the value, and raises ValueError with the whole sentence.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oarlock.quantities import Duration, Replicas, Size
from oarlock.wording import listed, nearest, show, unexpected


@dataclass(frozen=True)
class Kind:
    read: Callable[[Any], Any]
    schema: dict[str, Any]


def whole(least: int = 0, most: int | None = None) -> Kind:
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
    """`2`, `0.5`, or Kubernetes' `500m`."""
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
                _matching(_MILLICORES),
            ]
        },
    )


def flag() -> Kind:
    def read(written: Any) -> bool:
        if not isinstance(written, bool):
            raise unexpected("true or false", written)
        return written

    return Kind(read, {"type": "boolean"})


def text(
    expected: str, pattern: str = "", hint: Callable[[str], str] = lambda written: "", least: int = 1
) -> Kind:
    """Text of at least so many characters that, if there is a pattern, matches it from end to end."""

    def read(written: Any) -> str:
        if not isinstance(written, str) or len(written) < least or not _passable(written):
            raise unexpected(expected, written)
        if pattern and not re.fullmatch(pattern, written):
            raise unexpected(expected, written, hint(written))
        return written

    return Kind(read, _matching(pattern) if pattern else {"type": "string", "minLength": least})


def bucket(*schemes: str) -> Kind:
    """A folder, or a bucket and a path in it by a URL, in which nothing secret has a place."""
    expected = f"a folder, or a URL such as {schemes[0]}://bucket/folder ({listed(schemes)})"
    pattern = rf"(?:{'|'.join(schemes)})://[^/@?#\s]+(?:/[^@?#\s]*)?|(?!.*://).+"

    def read(written: Any) -> str:
        if not isinstance(written, str) or not written or not _passable(written):
            raise unexpected(expected, written)
        if "://" in written and re.search("[@?]", written):  # and it is not repeated here
            raise ValueError("a URL here holds no credentials; they are taken from the environment")
        if not re.fullmatch(pattern, written):
            raise unexpected(expected, written)
        return written

    return Kind(read, _matching(pattern))


def choice(*names: str) -> Kind:
    def read(written: Any) -> str:
        if isinstance(written, str) and written in names:
            return written
        near = nearest(written, names) if isinstance(written, str) else None
        raise unexpected(listed(names), written, f"did you mean {near}?" if near else "")

    return Kind(read, {"type": "string", "enum": list(names)})


def either(word: str, kind: Kind, expected: str) -> Kind:
    """A word with a meaning of its own, or what the kind reads."""

    def read(written: Any) -> Any:
        if written == word:
            return written
        if isinstance(written, str):
            raise unexpected(expected, written, f"did you mean {word}?" if nearest(written, [word]) else "")
        return kind.read(written)

    return Kind(read, {"anyOf": [kind.schema, {"type": "string", "enum": [word]}]})


def several(expected: str, item: Kind) -> Kind:
    """A list of what the kind reads, or one of them alone."""

    def read(written: Any) -> tuple[Any, ...]:
        if isinstance(written, str):
            return (item.read(written),)
        if not isinstance(written, (list, tuple)):
            raise unexpected(expected, written)
        return tuple(_item(item, str(number), one) for number, one in enumerate(written))

    return Kind(read, {"anyOf": [{"type": "array", "items": item.schema}, item.schema]})


def words(expected: str, least: int = 0, word: Kind | None = None) -> Kind:
    """A list of words, or one line that is split as a shell would split it (but that no shell runs).

    With `word`, each of them is of that kind.
    """

    def read(written: Any) -> tuple[str, ...]:
        if isinstance(written, str):
            found = _split(expected, written)
        elif isinstance(written, (list, tuple)):
            found = tuple(_word(item, f"as word {number}") for number, item in enumerate(written, 1))
        else:
            raise unexpected(expected, written)
        if len(found) < least or (least and not found[0]):
            raise unexpected(expected, written)
        return tuple(word.read(one) for one in found) if word else found

    items = {"type": "array", "minItems": least, "items": {"type": ["string", "number", "boolean"]}}
    return Kind(read, {"anyOf": [items, {"type": "string", "minLength": least}]})


def variables(refused: Callable[[str], str | None]) -> Kind:
    """Environment variables; `refused` says why a name is not the user's to set, or None."""

    def read(written: Any) -> dict[str, str]:
        if not isinstance(written, Mapping):
            raise unexpected("names and values", written)
        for name in written:
            if not isinstance(name, str) or not re.fullmatch(_NAME, name):
                raise ItemError(show(name).strip('"'), "not a name for an environment variable")
            why = refused(name)
            if why:
                raise ItemError(name, why)
        return {name: _variable(name, value) for name, value in written.items() if value is not None}

    def _variable(name: str, value: Any) -> str:
        try:
            return _word(value)
        except ValueError as problem:
            raise ItemError(name, str(problem)) from None

    values = {"type": ["string", "number", "boolean", "null"]}
    return Kind(read, {"type": "object", "propertyNames": _matching(_NAME), "additionalProperties": values})


def pairs(name: Kind, value: Kind, refused: Callable[[str], str | None] = lambda name: None) -> Kind:
    """Names and texts, each of its kind; `refused` says why a name is not the user's to give, or None."""

    def read(written: Any) -> dict[str, str]:
        if not isinstance(written, Mapping):
            raise unexpected("names and values", written)
        for given in written:
            why = refused(_item(name, show(given).strip('"'), given))
            if why:
                raise ItemError(given, why)
        return {
            given: _item(value, given, text, as_word=True)
            for given, text in written.items()
            if text is not None
        }

    values = [value.schema, {"type": ["number", "boolean", "null"]}]
    schema = {"type": "object", "propertyNames": name.schema, "additionalProperties": {"anyOf": values}}
    return Kind(read, schema)


def anything() -> Kind:
    """A mapping of plain data that is looked at later, by whoever it is for."""

    def read(written: Any) -> dict[str, Any]:
        if not isinstance(written, Mapping):
            raise unexpected("a mapping", written)
        return {_name(name): _plain_data(value, name) for name, value in written.items()}

    return Kind(read, {"type": "object"})


def duration(least: str = "0s", or_none: bool = False) -> Kind:
    shortest = Duration.parse(least)

    def read(written: Any) -> Duration | None:
        if or_none and isinstance(written, str) and written.lower() == "none":
            return None
        found = Duration.parse(written)
        if found < shortest:
            raise unexpected(f"{least} or more", written, "write none for no limit" if or_none else "")
        return found

    forms = [{"type": "number", "minimum": shortest.seconds}, _matching(Duration.PATTERN)]
    return Kind(read, {"anyOf": [*forms, _matching("[Nn][Oo][Nn][Ee]")] if or_none else forms})


def flag_or_duration(least: str) -> Kind:
    """Yes or no, or for how long."""
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
    smallest = Size.parse(least)

    def read(written: Any) -> Size | None:
        if or_none and isinstance(written, str) and written.lower() == "none":
            return None
        found = Size.parse(written)
        if found < smallest:
            raise unexpected(f"{least} or more", written, "write none for no limit" if or_none else "")
        return found

    forms = [{"type": "integer", "minimum": smallest.bytes}, _matching(Size.PATTERN)]
    return Kind(read, {"anyOf": [*forms, _matching("[Nn][Oo][Nn][Ee]")] if or_none else forms})


def replicas() -> Kind:
    return Kind(Replicas.parse, {"anyOf": [{"type": "integer", "minimum": 1}, _matching(Replicas.PATTERN)]})


class ItemError(ValueError):
    """What is wrong with one entry of a mapping, told apart so that the message can name its line."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_MILLICORES = "[0-9]{1,9}m"
_DEEPEST = 50


def _matching(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def _word(written: Any, which: str = "") -> str:
    """Numbers and booleans become the text that a YAML file would have for them."""
    if isinstance(written, bool):
        return "true" if written else "false"
    if isinstance(written, (int, float)):
        return str(written)
    if not isinstance(written, str) or not _passable(written):
        raise unexpected(f"text or a number {which}".rstrip(), written)
    return written


def _item(kind: Kind, key: str, written: Any, as_word: bool = False) -> Any:
    try:
        return kind.read(_word(written) if as_word else written)
    except ValueError as problem:
        raise ItemError(key, str(problem)) from None


def _plain_data(written: Any, path: str, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise ItemError(path, "nested too deeply")
    if isinstance(written, Mapping):
        return {
            _name(name, path): _plain_data(value, f"{path}.{name}", depth + 1)
            for name, value in written.items()
        }
    if isinstance(written, (list, tuple)):
        return [_plain_data(value, f"{path}.{number}", depth + 1) for number, value in enumerate(written)]
    if written is None or isinstance(written, (bool, int)):
        return written
    if isinstance(written, float) and math.isfinite(written):
        return written
    if isinstance(written, str) and _passable(written):
        return written
    raise ItemError(path, str(unexpected("text, a number, a list or a mapping", written)))


def _name(written: Any, path: str = "") -> str:
    if isinstance(written, str) and _passable(written):
        return written
    raise ItemError(".".join(filter(None, (path, show(written).strip('"')))), "expected a name")


def _passable(written: str) -> bool:
    """No process can be given a NUL or half a surrogate pair in its arguments or environment."""
    return "\0" not in written and not any("\ud800" <= c <= "\udfff" for c in written)


def _split(expected: str, line: str) -> tuple[str, ...]:
    try:
        found = tuple(shlex.split(line))
    except ValueError:
        raise unexpected(expected, line, "a quotation mark is not closed") from None
    operator = next((word for word in found if word in _OPERATORS), None)
    if operator:
        raise unexpected(
            expected, line, f'no shell runs it, so {operator} would be an argument; use ["sh", "-c", ...]'
        )
    return tuple(_word(word) for word in found)


_OPERATORS = frozenset(("|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"))
