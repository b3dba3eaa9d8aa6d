"""Sections: frozen structs whose fields check themselves, whoever makes them (a file, a flag, Python).

A field is declared once, as `Annotated[type, kind, "what it is for"]`; reading, messages and the JSON
schema all come from that declaration. Why not msgspec's own conversion: its messages speak of `$.limits`
and `int`, and it cannot say which name was meant. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from oarlock.errors import JobError
from oarlock.reading.kinds import ItemError, Kind
from oarlock.reading.wording import listed, nearest, show

Path = tuple[str, ...]


class FieldError(JobError):
    """What is wrong with one field: its path, and the sentence without the path."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{'.'.join(path)}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    def inside(self, name: str) -> FieldError:
        return type(self)((name, *self.path), self.problem)


class Field(NamedTuple):
    kind: Kind | type[Section]
    description: str
    default: Any
    optional: bool


class Section(msgspec.Struct, frozen=True):
    """A part of the job file. In data a null means "not given", for every field."""

    # The field that a bare value stands for: `worker: 4` is `worker: {replicas: 4}`.
    shorthand: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        for name, field in fields_of(type(self)).items():
            given = getattr(self, name)
            if given is field.default or (given is None and field.optional):
                continue
            try:
                value = field.default if given is None else read(field.kind, given)
            except ItemError as problem:
                raise FieldError((name, problem.key), str(problem)) from None
            except ValueError as problem:
                raise FieldError((name,), str(problem)) from None
            except FieldError as problem:
                raise problem.inside(name) from None
            msgspec.structs.force_setattr(self, name, value)
        self.check()

    def check(self) -> None:
        """Raise FieldError for fields that are right each by itself and wrong together."""


S = TypeVar("S", bound=Section)


def read(kind: Kind | type[S], written: Any) -> Any:
    if isinstance(kind, Kind):
        return kind.read(written)
    return read_section(kind, written)


def read_section(section: type[S], written: Any) -> S:
    """Plain data to a section; raises FieldError."""
    if isinstance(written, section):
        return written
    if not isinstance(written, Mapping):
        if section.shorthand is None or isinstance(written, (list, tuple)):
            raise FieldError((), f"expected {listed(fields_of(section), 'and')}, found {show(written)}")
        return section(**{section.shorthand: written})
    for name in written:
        if name not in fields_of(section):
            raise FieldError((show(name).strip('"'),), no_such_field(section, str(name)))
    return section(**{name: value for name, value in written.items() if value is not None})


def no_such_field(section: type[Section], name: str) -> str:
    near = meant(section, name)
    return f"no such field; did you mean {near}?" if near else f"no such field; there is {known(section)}"


def meant(section: type[Section], name: str) -> str | None:
    """The field that was probably meant: one of this section's, or one that sits further inside."""
    here = nearest(name, fields_of(section))
    if here:
        return here
    inner = {path[-1]: ".".join(path) for path in reversed([*_paths(section)])}
    near = nearest(name, inner, cutoff=0.8)
    return inner[near] if near else None


def known(section: type[Section]) -> str:
    return listed(fields_of(section), "and")


@cache
def fields_of(section: type[Section]) -> dict[str, Field]:
    hints = get_type_hints(section, include_extras=True)
    return {
        field.name: _field(hints[field.name], _default(field)) for field in msgspec.structs.fields(section)
    }


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _field(hint: Any, default: Any) -> Field:
    type_, *kind, description = get_args(hint)
    types = get_args(type_) if type(None) in get_args(type_) else (type_,)
    # A section inside a section: its class is its kind.
    return Field(kind[0] if kind else types[0], description, default, optional=type(None) in types)


def _paths(section: type[Section], depth: int = 2) -> Iterator[Path]:
    for name, field in fields_of(section).items():
        yield (name,)
        if not isinstance(field.kind, Kind) and depth > 1:
            for path in _paths(field.kind, depth - 1):
                yield (name, *path)
