"""The kinds of list and mapping that a field can hold: words, variables, labels, plain data. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from oarlock.job.parsing.kinds import Kind, is_passable, matching
from oarlock.wording import show, unexpected

_VARIABLE = "[A-Za-z_][A-Za-z0-9_]*"
_DEEPEST = 50
_OPERATORS = frozenset(("|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"))


class ItemError(ValueError):
    """A problem with one entry of a list or mapping, kept apart so that the message can name its line."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def several(expected: str, item: Kind) -> Kind:
    """A list of what the kind reads, or a single one."""

    def read(written: Any) -> tuple[Any, ...]:
        if isinstance(written, str):
            return (item.read(written),)
        if not isinstance(written, (list, tuple)):
            raise unexpected(expected, written)
        return tuple(_item(item, str(number), one) for number, one in enumerate(written))

    return Kind(read, {"anyOf": [{"type": "array", "items": item.schema}, item.schema]})


def words(expected: str, least: int = 0, word: Kind | None = None) -> Kind:
    """A list of words, or one line that is split as a shell would split it (no shell runs it).

    With `word`, each word is of that kind.
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
    schema = {"anyOf": [items, {"type": "string", "minLength": least}]}
    return Kind(read, schema, keeps_text=True)


def variables(refused: Callable[[str], str | None]) -> Kind:
    """Environment variables; `refused` says why a user may not set a name, or None."""

    def read(written: Any) -> dict[str, str]:
        if not isinstance(written, Mapping):
            raise unexpected("names and values", written)
        for name in written:
            if not isinstance(name, str) or not re.fullmatch(_VARIABLE, name):
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
    schema = {"type": "object", "propertyNames": matching(_VARIABLE), "additionalProperties": values}
    return Kind(read, schema, keeps_text=True)


def pairs(name: Kind, value: Kind, refused: Callable[[str], str | None] = lambda name: None) -> Kind:
    """Names and texts, each of its kind; `refused` says why a user may not give a name, or None."""

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
    return Kind(read, schema, keeps_text=True)


def anything() -> Kind:
    """A mapping of plain data that is not checked here."""

    def read(written: Any) -> dict[str, Any]:
        if not isinstance(written, Mapping):
            raise unexpected("a mapping", written)
        return {_name(name): _plain_data(value, name) for name, value in written.items()}

    return Kind(read, {"type": "object"})


def _word(written: Any, which: str = "") -> str:
    """Text as it is; numbers and booleans as the text that a YAML file would have for them."""
    if isinstance(written, bool):
        return "true" if written else "false"
    if isinstance(written, (int, float)):
        return str(written)
    if not isinstance(written, str) or not is_passable(written):
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
    if isinstance(written, str) and is_passable(written):
        return written
    raise ItemError(path, str(unexpected("text, a number, a list or a mapping", written)))


def _name(written: Any, path: str = "") -> str:
    if isinstance(written, str) and is_passable(written):
        return written
    raise ItemError(".".join(filter(None, (path, show(written).strip('"')))), "expected a name")


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
