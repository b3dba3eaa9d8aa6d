"""Fields that flags set by their dotted path, over what a file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oarlock.job.parsing.fields import Path, Section, Sections, fields_of, keeps_text, known, meant
from oarlock.job.parsing.kinds import Kind
from oarlock.job.parsing.yaml_source import read_value


@dataclass(frozen=True)
class Override:
    """A field that a flag sets."""

    flag: str  # its name in messages: `--workers`, `--set limits.restarts=5`
    path: Path
    value: Any

    def concerns(self, path: Path) -> bool:
        """Whether a problem at this path is about the value of the flag."""
        return self.path == path[: len(self.path)]


def path_of(section: type[Section], name: str) -> Path:
    """Split a dotted path; the name of a text may have dots itself: `kubernetes.labels.example.com/team`."""
    path = tuple(part.strip() for part in name.split("."))
    for length in range(1, len(path)):
        if keeps_text(section, path[: length + 1]):
            return (*path[:length], ".".join(path[length:]))
    return path


def kind_at(section: type[Section], path: Path) -> Kind | type[Section] | Sections | None:
    """The kind of the field at a path; None inside a free-form mapping. Raises ValueError for no field."""
    kind: Kind | type[Section] | Sections = section
    for depth, name in enumerate(path):
        if isinstance(kind, type):
            if name not in fields_of(kind):
                raise ValueError(_no_such_field(kind, path[:depth], path))
            kind = fields_of(kind)[name].kind
        elif isinstance(kind, Sections) and kind.names:
            kind = kind.of
        elif isinstance(kind, Kind) and kind.schema.get("type") == "object":
            return None
        else:
            raise ValueError(f"no such field {'.'.join(path)}; {'.'.join(path[:depth])} has no fields")
    return kind


def apply(section: type[Section], data: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """Set one field in the data. A value that has no such field stays as it is: reading it says why."""
    name, *rest = path
    if not rest:
        return {**data, name: value}
    field, inner = fields_of(section)[name], data.get(name)
    return {**data, name: _within(field.kind, None if field.is_none(inner) else inner, tuple(rest), value)}


def _within(kind: Kind | type[Section] | Sections, inner: Any, path: Path, value: Any) -> Any:
    if isinstance(kind, Kind):
        return _nested(inner, path, value)
    around = {} if inner is None else inner
    if isinstance(kind, type):
        fields = around if isinstance(around, Mapping) else kind.spelled_out(around)
        return inner if fields is None else apply(kind, fields, path, value)
    if not isinstance(around, Mapping):
        return inner
    name, *rest = path
    return {**around, name: _within(kind.of, around.get(name), tuple(rest), value) if rest else value}


def value_of(section: type[Section], path: Path, text: str) -> Any:
    """Read a flag's text for its field: as a YAML value if that fits, else as plain text if that fits.

    So `--set limits.restarts=5` is a number and `--set args=5` one argument. Raises ValueError.
    """
    kind = kind_at(section, path)
    if kind is None and keeps_text(section, path):
        return text  # a variable is text, even if it looks like a number: `--set env.VERSION=1.10`
    fits_as_text = isinstance(kind, Kind) and _fits(kind, text)
    try:
        value = read_value(text, section, path)
    except ValueError:
        if fits_as_text:
            return text
        raise
    return text if fits_as_text and isinstance(kind, Kind) and not _fits(kind, value) else value


def _fits(kind: Kind, value: Any) -> bool:
    try:
        kind.read(value)
    except ValueError:
        return value is None
    return True


def _nested(inner: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    around = dict(inner) if isinstance(inner, Mapping) else {}
    return {**around, path[0]: _nested(around.get(path[0]), path[1:], value)}


def _no_such_field(section: type[Section], around: Path, path: Path) -> str:
    if (why := section.lacks.get(path[len(around)])) is not None:
        return why
    near = meant(section, path[len(around)])
    wanted = f"did you mean {'.'.join((*around, near))}?" if near else f"there is {known(section)}"
    return f"no such field {'.'.join(path)}; {wanted}"
