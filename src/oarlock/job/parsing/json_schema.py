"""The JSON schema of a section, from the same declarations that read it. Pure."""

from __future__ import annotations

import inspect
from typing import Any

from oarlock.job.parsing.fields import Field, Section, Sections, fields_of
from oarlock.job.parsing.kinds import Kind


def schema_of(section: type[Section]) -> dict[str, Any]:
    """Make the JSON schema (2020-12) of a section, with the sections inside it under `$defs`."""
    inner: dict[str, dict[str, Any]] = {}
    outer = _object(section, inner)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **outer, "$defs": inner}


def _object(section: type[Section], inner: dict[str, dict[str, Any]]) -> dict[str, Any]:
    required = [name for name, field in fields_of(section).items() if field.required]
    return {
        "title": section.__name__,
        "description": inspect.getdoc(section) or "",
        "type": "object",
        "properties": {name: _property(name, field, inner) for name, field in fields_of(section).items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _property(name: str, field: Field, inner: dict[str, dict[str, Any]]) -> dict[str, Any]:
    about = {"title": name.replace("_", " ").capitalize(), "description": field.description}
    if isinstance(field.kind, Kind):
        return {**about, **(field.kind.schema if field.required else _or_null(field.kind.schema))}
    if isinstance(field.kind, Sections):
        return {**about, "anyOf": [_several(field.kind, inner), {"type": "null"}]}
    none = [{"type": "string", "pattern": "^[Nn][Oo][Nn][Ee]$"}] if field.may_be_none else []
    return {**about, "anyOf": [*_forms(field.kind, inner), *none, {"type": "null"}]}


def _forms(section: type[Section], inner: dict[str, dict[str, Any]], list_too: bool = True) -> list[Any]:
    """The forms in which a section may be written: its fields, or a shorthand."""
    if section.__name__ not in inner:
        inner[section.__name__] = {}  # known from here on: a section may have its own kind inside
        inner[section.__name__] = _object(section, inner)
    forms: list[dict[str, Any]] = [{"$ref": f"#/$defs/{section.__name__}"}]
    if section.shorthand:
        short = fields_of(section)[section.shorthand].kind
        assert isinstance(short, Kind)
        forms += short.schema.get("anyOf", [short.schema])
    if section.list_of and list_too:
        items = fields_of(section)[section.list_of].kind
        assert isinstance(items, Sections)
        forms.append(_several(items, inner))
    return forms


def _several(kind: Sections, inner: dict[str, dict[str, Any]]) -> dict[str, Any]:
    forms = _forms(kind.of, inner, list_too=False)
    if kind.names is None:
        return {"type": "array", "minItems": kind.least, "items": {"anyOf": forms}}
    values = {"anyOf": [*forms, {"type": "null"}]}
    return {"type": "object", "propertyNames": kind.names.schema, "additionalProperties": values}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow null, which stands for the default: as in a YAML file with `name:` and no value."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    allowed = {**schema, "type": [schema["type"], "null"]}
    return {**allowed, "enum": [*schema["enum"], None]} if "enum" in schema else allowed
