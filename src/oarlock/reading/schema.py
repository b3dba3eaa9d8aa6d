"""The JSON schema of a section, from the same declarations that read it. Pure."""

from __future__ import annotations

import inspect
from typing import Any

from oarlock.reading.fields import Field, Section, fields_of
from oarlock.reading.kinds import Kind


def schema_of(section: type[Section]) -> dict[str, Any]:
    """A JSON schema (2020-12), with the sections inside this one under `$defs`."""
    inner: dict[str, dict[str, Any]] = {}
    outer = _object(section, inner)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **outer, "$defs": inner}


def _object(section: type[Section], inner: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": section.__name__,
        "description": inspect.getdoc(section) or "",
        "type": "object",
        "properties": {name: _property(name, field, inner) for name, field in fields_of(section).items()},
        "additionalProperties": False,
    }


def _property(name: str, field: Field, inner: dict[str, dict[str, Any]]) -> dict[str, Any]:
    about = {"title": name.capitalize(), "description": field.description}
    if isinstance(field.kind, Kind):
        return {**about, **_or_null(field.kind.schema)}
    section = field.kind
    if section.__name__ not in inner:
        inner[section.__name__] = _object(section, inner)
    forms: list[dict[str, Any]] = [{"$ref": f"#/$defs/{section.__name__}"}, {"type": "null"}]
    if section.shorthand:
        short = fields_of(section)[section.shorthand].kind
        assert isinstance(short, Kind)
        forms[1:1] = short.schema.get("anyOf", [short.schema])
    return {**about, "anyOf": forms}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A null stands for the default everywhere, as in a YAML file with `name:` and nothing behind it."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    allowed = {**schema, "type": [schema["type"], "null"]}
    return {**allowed, "enum": [*schema["enum"], None]} if "enum" in schema else allowed
