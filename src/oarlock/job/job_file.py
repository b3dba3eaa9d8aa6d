"""Find and read the job: job.yaml, pyproject.toml, the program's own block, and flags over all of them.

Every mistake ends in one JobError with file and line, or the flag. Nothing is written here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from oarlock.errors import JobError
from oarlock.job import runnable
from oarlock.job.model import WAYS, FieldError, Job, parse, slug, to_data
from oarlock.job.parsing import overrides as flags
from oarlock.job.parsing.overrides import Override
from oarlock.job.parsing.source import JobSource, read_text
from oarlock.job.parsing.toml_source import read_script, read_toml
from oarlock.job.parsing.yaml_source import read_yaml
from oarlock.wording import nearest, printable, unexpected

JOB_FILES = ("job.yaml", "job.yml")
PYPROJECT = "pyproject.toml"
PROGRAM = "train.py"
# The fields that have a flag of their own; --set reaches any other field.
FLAGS = {
    "roles.worker.replicas": "--workers",
    "roles.chief.replicas": "--chief",
    "roles.ps.replicas": "--ps",
    "roles.evaluator.replicas": "--evaluator",
    "warm": "--warm",
    "ingest.when": "--skip-ingest, --force-ingest",
    "args": "arguments",
    "storage.weights": "--from",
    "kubernetes.namespace": "--namespace",
    "kubernetes.context": "--context",
}


@dataclass(frozen=True)
class JobFile:
    """A job, and where it was found."""

    job: Job
    folder: Path  # what travels, and where tasks start; `job.program` is relative to it
    source: Path | None  # the file that the job was read from, if there is one


@dataclass(frozen=True)
class _Found:
    folder: Path
    file: Path | None
    source: JobSource
    defaults: dict[str, Any]


def load(
    target: str | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    cwd: Path | None = None,
    is_here: bool = True,
) -> JobFile:
    """Load the job of a target (a program, a job file, a folder; None: the current folder) and of flags.

    `overrides` maps dotted paths to values (None: not given); `sets` holds `path=value` texts. `is_here` says
    whether the job runs on this machine.
    """
    here = Path(os.path.normpath((cwd or Path.cwd()).absolute()))
    changes = [*_from_flags(overrides or {}), *map(_from_set, sets)]
    found = _find(target, here, has_way=any(change.path[0] in WAYS for change in changes))
    data = _merge(found, changes)
    try:
        job = parse(data)
        job = runnable.check(job, found.folder, is_here)
    except FieldError as problem:
        raise JobError(_located(problem, found.source, changes)) from None
    if job.program is not None and data.get("pip") is None:
        job = _with_dependencies(job, found.folder / job.program, here)
    return JobFile(job, found.folder, found.file)


def with_sets(job: Job, sets: Sequence[str]) -> Job:
    """Return a job with some of its fields set, as with --set. Raises JobError."""
    changes = [_from_set(written) for written in sets]
    data = to_data(job)
    for change in changes:
        data = flags.apply(Job, data, change.path, change.value)
    try:
        return parse(data) if changes else job
    except FieldError as problem:
        raise JobError(_located(problem, JobSource(job.name), changes)) from None


def _find(target: str | None, cwd: Path, has_way: bool) -> _Found:
    path = Path(os.path.normpath(cwd / (target or ".")))
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError):  # a NUL, a name too long
        is_folder, exists = False, False
    if is_folder:
        return _find_in_folder(path, cwd, has_way)
    if not exists:
        raise JobError(_missing(target or ".", path))
    if path.suffix == ".py":
        return _from_program(path, cwd if path.is_relative_to(cwd) else path.parent, cwd)
    if path.suffix in (".yaml", ".yml", ".toml"):
        return _from_file(path, cwd)
    expected = "expected a program (.py), a job file (.yaml, .yml, .toml) or a folder"
    raise JobError(f"{_shown(path, cwd)}: {expected}")


def _find_in_folder(folder: Path, cwd: Path, has_way: bool) -> _Found:
    for name in JOB_FILES:
        if (folder / name).exists():
            return _from_file(folder / name, cwd)
    if (folder / PYPROJECT).exists() and _read_pyproject(folder / PYPROJECT, cwd):
        return _from_file(folder / PYPROJECT, cwd)
    if (folder / PROGRAM).is_file():
        return _from_program(folder / PROGRAM, folder, cwd)
    if has_way:  # `oarlock run -m package.train`: the flags are the whole job
        return _Found(folder, None, JobSource("the command line"), {})
    looked_for = f"{', '.join(JOB_FILES)}, [tool.oarlock] in {PYPROJECT} and {PROGRAM}"
    raise JobError(f"{folder}: no job here; looked for {looked_for}")


def _from_file(file: Path, cwd: Path) -> _Found:
    shown = _shown(file, cwd)
    if file.name == PYPROJECT:
        source = _read_pyproject(file, cwd)
        if source is None:
            raise JobError(f"{shown}: there is no [tool.oarlock] in it")
    elif file.suffix == ".toml":
        source = read_toml(read_text(file, shown), shown, Job) or JobSource(shown)
    else:
        source = read_yaml(read_text(file, shown), shown, Job)
    return _Found(file.parent, file, source, {"name": slug(file.parent.name)})


def _read_pyproject(file: Path, cwd: Path) -> JobSource | None:
    shown = _shown(file, cwd)
    return read_toml(read_text(file, shown), shown, Job, ("tool", "oarlock"))


def _from_program(program: Path, folder: Path, cwd: Path) -> _Found:
    shown = _shown(program, cwd)
    source = read_script(runnable.read_program(program, shown), shown, Job)
    defaults = {"program": program.relative_to(folder).as_posix()}
    if source is None:
        return _Found(folder, None, JobSource(shown), defaults)
    for name in WAYS:
        if source.data.get(name) is not None:
            where = source.where((name,))
            raise JobError(
                f"{where}: {name}: not allowed in a program's own block: the block belongs to the program"
            )
    return _Found(folder, program, source, defaults)


def _with_dependencies(job: Job, program: Path, cwd: Path) -> Job:
    """Add the packages that the program names in its own block (PEP 723)."""
    shown = _shown(program, cwd)
    block = read_script(runnable.read_program(program, shown), shown, Job, table=())
    if block is None or "dependencies" not in block.data:
        return job
    named, where = block.data["dependencies"], block.where(("dependencies",))
    if not isinstance(named, list):
        raise JobError(f"{where}: dependencies: {unexpected('a list of packages', named)}")
    try:
        return msgspec.structs.replace(job, pip=named)
    except FieldError as problem:
        raise JobError(f"{where}: dependencies: {problem.problem}") from None


def _missing(target: str, path: Path) -> str:
    if path.suffix == ".py":
        return f"{printable(target)}: {runnable.no_such_program(path.name, path.parent)}"
    siblings = [entry.name for entry in runnable.entries(path.parent)]
    near = nearest(path.name, siblings)
    return f"{printable(target)}: no such file or folder" + (f"; did you mean {near}?" if near else "")


def _shown(path: Path, cwd: Path) -> str:
    return printable(str(path.relative_to(cwd) if path.is_relative_to(cwd) else path))


def _from_flags(values: Mapping[str, Any]) -> list[Override]:
    return [
        _override(FLAGS.get(name, f"--{name.replace('.', ' ')}"), name, value)
        for name, value in values.items()
        if value is not None
    ]


def _from_set(written: str) -> Override:
    flag = f"--set {printable(written)}"
    name, equals, text = written.partition("=")
    if not equals or not all(name.split(".")):
        raise JobError(f"{flag}: expected a field and a value, such as limits.restarts=5")
    return _override(flag, name, text)


def _override(flag: str, name: str, value: Any) -> Override:
    path = flags.path_of(Job, name)
    try:
        flags.kind_at(Job, path)
        return Override(flag, path, flags.value_of(Job, path, value) if isinstance(value, str) else value)
    except ValueError as problem:
        raise JobError(f"{flag}: {problem}") from None


def _merge(found: _Found, changes: Sequence[Override]) -> dict[str, Any]:
    data = {**found.source.data}
    for change in changes:
        if change.path[0] in WAYS:  # a flag for what to run replaces what the file says
            data = {name: value for name, value in data.items() if name not in WAYS}
        data = flags.apply(Job, data, change.path, change.value)
    for name, value in found.defaults.items():
        fields = WAYS if name == "program" else (name,)
        if all(data.get(way) is None for way in fields):
            data[name] = value
    return data


def _located(problem: FieldError, source: JobSource, changes: Sequence[Override]) -> str:
    """Put the place before the problem: the flag that set the field, else the file and its line."""
    for change in reversed(changes):
        if change.concerns(problem.path):
            return f"{change.flag}: {problem.problem if change.path == problem.path else problem}"
    return f"{source.where(problem.path)}: {problem}"
