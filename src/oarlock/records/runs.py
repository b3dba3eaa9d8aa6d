"""The records on this machine: create, list and find them."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oarlock.errors import JobError, OarlockError, UnknownRun
from oarlock.records.run_folder import RunFolder
from oarlock.records.run_names import check_name, new_name
from oarlock.system.atomic_file import sync_folder

# The folders that Oarlock creates in OARLOCK_HOME.
_OURS = frozenset({"runs", "data", "cache", "warm", "crashes"})
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DAY = 86400.0
_DRAFT = ".new-"  # before the name of a folder that may become a run


def home() -> Path:
    """Return the folder of all that Oarlock keeps on this machine (`OARLOCK_HOME`)."""
    return Path(os.environ.get("OARLOCK_HOME") or "~/.oarlock").expanduser().absolute()


def create(job: str, fill: Callable[[RunFolder], Any], name: str | None = None) -> RunFolder:
    """Create a record, complete or not at all: `fill` writes into a folder that no other process sees yet.

    Raises JobError if a run called `name` exists, and OarlockError if the disk is full.
    """
    if name is not None:
        check_name(name)
    root = home() / "runs"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tighten()
    for leftover in filter(_is_abandoned, root.glob(".*")):
        shutil.rmtree(leftover, ignore_errors=True)
    for _ in range(100):
        final = root / (name or new_name(job))
        if final.exists():
            if name:
                raise JobError(
                    f"there is a run called {name}: choose another --name, or `oarlock delete {name}`"
                )
            continue
        with tempfile.TemporaryDirectory(dir=root, prefix=_DRAFT) as hidden:
            draft = Path(hidden) / final.name
            draft.mkdir(mode=0o700)
            try:
                fill(RunFolder(draft))
            except OSError as problem:
                if problem.errno in _FULL:
                    raise OarlockError(
                        f"no room for a new run in {root}: {problem.strerror}; "
                        "free some, or set OARLOCK_HOME to a folder elsewhere"
                    ) from None
                raise
            try:
                draft.rename(final)
            except OSError:
                continue  # another client has taken the name since
            sync_folder(root)
            return RunFolder(final)
    raise OarlockError(f"no free name for a run of {job} in {root}")


def _is_abandoned(hidden: Path) -> bool:
    """Whether it was to be deleted, or is the draft of a client that was killed. A young one may still become
    a run."""
    if hidden.name.endswith(".deleted"):
        return True
    try:
        return hidden.name.startswith(_DRAFT) and hidden.stat().st_mtime < time.time() - _DAY
    except OSError:
        return False  # it is a run by now, or gone


def _tighten() -> None:
    """Make private what an older version created. An OARLOCK_HOME with other files in it is left alone."""
    top = home()
    try:
        _make_private(top / "runs")
        with os.scandir(top) as entries:
            is_ours = all(entry.name in _OURS for entry in entries)
        if is_ours:
            _make_private(top)
            return
        for name in ("data", "cache"):  # frameworks and programs fill these, with the modes they choose
            if (top / name).is_dir():
                _make_private(top / name)
    except OSError:
        pass  # the file system is read-only, or the folder is gone


def _make_private(folder: Path) -> None:
    known = folder.stat()
    if known.st_uid == os.geteuid() and known.st_mode & 0o077:
        folder.chmod(0o700)


def all_runs() -> list[RunFolder]:
    """Return every run that has a record, newest first."""
    root = home() / "runs"
    if not root.is_dir():
        return []
    _tighten()
    found: list[tuple[float, RunFolder]] = []
    for path in root.iterdir():
        run = RunFolder(path)
        try:
            if not path.name.startswith("."):
                found.append((run.created, run))
        except OSError:
            pass  # not a run, or deleted since it was listed
    return [run for _, run in sorted(found, key=lambda pair: pair[0], reverse=True)]


def find(name: str | None) -> RunFolder:
    """Return the run whose name is, or starts with, `name`; the newest run if `name` is None.

    Raises UnknownRun if there is none, or more than one.
    """
    found = all_runs()
    if name is None:
        if not found:
            raise UnknownRun("there are no runs yet; `oarlock run train.py` starts one")
        return found[0]
    for run in found:
        if run.name == name:
            return run
    matching = [run for run in found if run.name.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UnknownRun(f"{name} could be {', '.join(run.name for run in matching[:5])}")
    raise UnknownRun(f"there is no run called {name}; `oarlock ps` lists them")
