"""Whether the program, module or command of a job exists. Never writes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from oarlock.errors import JobError
from oarlock.job.model import WAYS, FieldError, Job
from oarlock.job.stages import Stage
from oarlock.wording import nearest, show


def check(job: Job, folder: Path, is_here: bool = True) -> Job:
    """The job with its program's path relative to the folder; raises FieldError if there is nothing to run.

    The command of a job that does not run here may be in an image, so it is not checked.
    """
    job = _checked(job, folder, is_here)
    for name in ("ingest", "evaluate"):
        stage = getattr(job, name)
        if stage is not None:
            try:
                stage = _checked(stage, folder, is_here)
            except FieldError as problem:
                raise problem.inside(name) from None
            job = msgspec.structs.replace(job, **{name: stage})
    if job.serve is not None and job.serve.predict is not None:
        predict = inside(job.serve.predict, folder, ("serve", "predict"))
        job = msgspec.structs.replace(job, serve=msgspec.structs.replace(job.serve, predict=predict))
    return job


def inside(program: str, folder: Path, field: tuple[str, ...] = ("program",)) -> str:
    """Return a file's path relative to the folder. Raises FieldError if there is no such file in it."""
    path = Path(os.path.normpath(folder / program))
    if not path.is_relative_to(folder):
        raise FieldError(field, f"{program} is outside {folder}, the folder that travels with the run")
    if path.is_dir():
        raise FieldError(field, f"{program} is a folder, not a program")
    if not path.is_file():
        raise FieldError(field, f"{program}: {no_such_program(path.name, path.parent)}")
    return path.relative_to(folder).as_posix()


S = TypeVar("S", Job, Stage)


def _checked(what: S, folder: Path, is_here: bool) -> S:
    try:
        if what.program is not None:
            return msgspec.structs.replace(what, program=inside(what.program, folder))
        if what.module is not None:
            _check_module(what.module, folder)
        if what.command is not None and (is_here or what.command[0].startswith("./")):
            _check_command(what.command[0], folder, what.env.get("PATH"))
        return what
    except OSError as problem:  # a name too long, a loop of links
        way = next(name for name in WAYS if getattr(what, name) is not None)
        raise FieldError((way,), f"cannot be read: {problem.strerror or problem}") from None


def read_program(program: Path, shown: str) -> str:
    """Read a program's text for its metadata; Python itself reports an invalid byte."""
    if not program.is_file():  # reading a pipe could wait forever
        raise JobError(f"{shown}: not a regular file")
    try:
        return program.read_bytes().decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    except OSError as problem:
        raise JobError(f"{shown}: cannot be read: {problem.strerror or problem}") from None


def no_such_program(name: str, folder: Path) -> str:
    """The message for a program that does not exist, with the name that was probably meant."""
    near = nearest(name, [entry.name for entry in entries(folder) if entry.suffix == ".py"])
    return f"no such program in {folder}" + (f"; did you mean {near}?" if near else "")


def entries(folder: Path) -> Iterator[Path]:
    """The entries of a folder, if it can be read; at most a thousand, enough for suggestions."""
    try:
        yield from islice(folder.iterdir(), 1000)
    except (OSError, ValueError):
        return


def _check_module(module: str, folder: Path) -> None:
    """Check only modules of the program's folder: other modules may be installed in the image alone."""
    first, *rest = module.split(".")
    if not _is_module(folder / first):
        near = nearest(first, _modules(folder)) if not _installed(first) else None
        if near:
            raise FieldError(
                ("module",), f"no module {module} in {folder}; did you mean {'.'.join((near, *rest))}?"
            )
        return
    place = folder / first
    for name in rest:
        if not _is_module(place / name):
            near = nearest(name, _modules(place))
            raise FieldError(
                ("module",), f"no module {name} in {place}" + (f"; did you mean {near}?" if near else "")
            )
        place /= name


def _check_command(word: str, folder: Path, path: str | None) -> None:
    if "/" in word:
        file = folder / word
        if not file.is_file():
            raise FieldError(("command",), f"{show(word)}: no such file in {folder}")
        if not os.access(file, os.X_OK):
            raise FieldError(
                ("command",), f"{show(word)}: not executable; chmod +x it, or name its interpreter"
            )
        return
    # The interpreter that runs Oarlock counts, even if its folder is not on PATH: .venv/bin/oarlock run.
    searched = os.pathsep.join((path or os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    if shutil.which(word, path=searched) is None:
        here = "; did you mean ./" + word + "?" if (folder / word).is_file() else ""
        raise FieldError(("command",), f"{show(word)}: no such command on PATH{here}")


def _is_module(path: Path) -> bool:
    return path.is_dir() or path.with_name(path.name + ".py").is_file()


def _modules(folder: Path) -> list[str]:
    return [entry.stem for entry in entries(folder) if entry.suffix == ".py" or entry.is_dir()]


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
