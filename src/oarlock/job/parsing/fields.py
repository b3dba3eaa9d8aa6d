"""Sections: frozen structs that check their own fields, whether a file, a flag or Python gives them.

A field is declared once, as `Annotated[type, kind, "what it is for"]`; reading, messages and the JSON
schema all come from that declaration. msgspec's own conversion does not fit: its messages say `$.limits` and
`int`, and it cannot suggest the name that was meant. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from oarlock.errors import JobError
from oarlock.job.parsing.compound_kinds import ItemError
from oarlock.job.parsing.kinds import Kind
from oarlock.wording import listed, nearest, show, unexpected

Path = tuple[str, ...]


class FieldError(JobError):
    """A problem with one field: its path, and the sentence without the path."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{'.'.join(path)}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    def inside(self, name: str) -> FieldError:
        """The same problem, seen from the enclosing section."""
        return type(self)((name, *self.path), self.problem)


class Field(NamedTuple):
    """A declared field of a section."""

    kind: Kind | type[Section] | Sections
    description: str
    default: Any
    optional: bool

    @property
    def required(self) -> bool:
        """Whether a job file must give it."""
        return self.default is msgspec.NODEFAULT

    @property
    def may_be_none(self) -> bool:
        """Whether `none` turns off a section that exists by default."""
        return isinstance(self.kind, type) and self.optional and self.default is not None

    def is_none(self, written: Any) -> bool:
        """Whether this value turns the section off."""
        return self.may_be_none and isinstance(written, str) and written.lower() == "none"


class Section(msgspec.Struct, frozen=True):
    """A part of the job file. For every field a null means "not given"."""

    # The field that a bare value stands for: `worker: 4` is `worker: {replicas: 4}`.
    shorthand: ClassVar[str | None] = None
    # The field that a list stands for: `worker: [{gpu: 1}, {gpu: 2}]` is `worker: {groups: [...]}`.
    list_of: ClassVar[str | None] = None
    # Fields that similar sections have and this one does not, each with what to do instead.
    lacks: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def spelled_out(cls, written: Any) -> Mapping[str, Any] | None:
        """The fields that a value other than a mapping stands for; None if it stands for none."""
        if isinstance(written, (list, tuple)):
            return {cls.list_of: [*written]} if cls.list_of else None
        return {cls.shorthand: written} if cls.shorthand else None

    def __post_init__(self) -> None:
        for name, field in fields_of(type(self)).items():
            given = getattr(self, name)
            if given is field.default or (given is None and field.optional):
                continue
            try:
                value = field.default if given is None and not field.required else _value(field, given)
            except ItemError as problem:
                raise FieldError((name, problem.key), str(problem)) from None
            except ValueError as problem:
                raise FieldError((name,), str(problem)) from None
            except FieldError as problem:
                raise problem.inside(name) from None
            msgspec.structs.force_setattr(self, name, value)
        self.check()

    def check(self) -> None:
        """Raise FieldError for fields that contradict each other."""


S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Sections:
    """The kind of a field with several sections: by name or, without a kind for names, in a list."""

    expected: str
    of: type[Section]
    names: Kind | None = None
    least: int = 0
    # Converts each section after it is read.
    then: Callable[[Any], Any] = lambda section: section

    def read(self, written: Any) -> Any:
        """Read a mapping of sections, or a list of them. Raises FieldError."""
        if self.names is None:
            return self._list(written)
        if not isinstance(written, Mapping):
            raise unexpected(self.expected, written)
        for name in written:
            self._check_name(self.names, name)
        return {name: self._one(name, item) for name, item in written.items() if item is not None}

    def _list(self, written: Any) -> tuple[Any, ...]:
        if not isinstance(written, (list, tuple)) or len(written) < self.least:
            raise unexpected(self.expected, written)
        return tuple(self._one(str(number), item) for number, item in enumerate(written))

    def _one(self, name: str, written: Any) -> Any:
        try:
            if written is None or isinstance(written, (list, tuple)):  # no list in a list, however deep
                raise FieldError((), f"expected {known(self.of)}, found {show(written)}")
            return self.then(read_section(self.of, written))
        except FieldError as problem:
            raise problem.inside(name) from None

    def _check_name(self, kind: Kind, name: Any) -> None:
        try:
            kind.read(name)
        except ValueError as problem:
            raise FieldError((show(name).strip('"'),), str(problem)) from None


def _value(field: Field, given: Any) -> Any:
    if field.is_none(given):
        return None
    if isinstance(field.kind, type):
        return read_section(field.kind, given)
    return field.kind.read(given)


def read_section(section: type[S], written: Any) -> S:
    """Make a section of plain data; raises FieldError."""
    if isinstance(written, section):
        return written
    if not isinstance(written, Mapping):
        return _read_short(section, written)
    for name in written:
        if name not in fields_of(section):
            raise FieldError((show(name).strip('"'),), no_such_field(section, str(name)))
    given = {name: value for name, value in written.items() if value is not None}
    required = {name: None for name, field in fields_of(section).items() if field.required}
    return section(**{**required, **given})


def _read_short(section: type[S], written: Any) -> S:
    fields = section.spelled_out(written)
    if fields is None:
        raise FieldError((), f"expected {known(section)}, found {show(written)}")
    try:
        return section(**fields)
    except FieldError as problem:
        # The list's field is not written in the file: it has `worker.0.gpu`, not `worker.groups.0.gpu`.
        if isinstance(written, (list, tuple)) and problem.path[:1] == (section.list_of,):
            raise type(problem)(problem.path[1:], problem.problem) from None
        raise


def no_such_field(section: type[Section], name: str) -> str:
    """The message for an unknown field, with the name that was probably meant."""
    if name in section.lacks:
        return section.lacks[name]
    near = meant(section, name)
    return f"no such field; did you mean {near}?" if near else f"no such field; there is {known(section)}"


def meant(section: type[Section], name: str) -> str | None:
    """The field that was probably meant: one of this section, or of a section inside it."""
    here = nearest(name, fields_of(section))
    if here:
        return here
    inner = {path[-1]: ".".join(path) for path in reversed([*_paths(section)])}
    near = nearest(name, inner, cutoff=0.8)
    return inner[near] if near else None


def known(section: type[Section]) -> str:
    """The section's fields as a list in words."""
    return listed(fields_of(section), "and")


def keeps_text(section: type[Section], path: Path) -> bool:
    """Whether a number or boolean at this path, inside a field of text, stays as it is written."""
    kind: Kind | type[Section] | Sections = section
    for name in path:
        if isinstance(kind, Kind):
            return kind.keeps_text
        if isinstance(kind, Sections):
            kind = kind.of
        elif name in fields_of(kind):
            kind = fields_of(kind)[name].kind
        elif kind.list_of is None:  # a list stands for that field: `worker.0.node_selector`
            return False
    return False


@cache
def fields_of(section: type[Section]) -> dict[str, Field]:
    """The declared fields of a section, by name."""
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
        if isinstance(field.kind, type) and depth > 1:
            for path in _paths(field.kind, depth - 1):
                yield (name, *path)
