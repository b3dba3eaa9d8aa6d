"""Folders that the shell sets in DATA_DIR and similar variables, which Oarlock sets for every task.

A user who exports DATA_DIR means the program to find its data there. So a job without `storage.data` takes
the shell's folder as its own; otherwise a note says which of the two the tasks get.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from oarlock.errors import JobError
from oarlock.job.model import FieldError, Job
from oarlock.job.reserved_variables import FOLDERS
from oarlock.wording import printable


def adopt(job: Job, shell: Mapping[str, str], cwd: Path, is_here: bool) -> tuple[Job, list[str]]:
    """Return the job with the shell's folders, and a line about each variable that the shell sets.

    `is_here` says whether the job runs on this machine. Raises JobError for a folder that the job refuses.
    """
    if "OARLOCK_RUN" in shell:  # a task calls Oarlock: these are its own folders, not this run's
        return job, []
    notes = []
    for variable, field in FOLDERS.items():
        value = shell.get(variable)
        if not value:
            continue
        place = value if "://" in value else str(cwd / Path(value).expanduser())
        chosen = getattr(job.storage, field)
        if chosen is not None:
            notes.append(_ignored(variable, f"the job has storage.{field}: {printable(chosen)}"))
        elif not is_here and "://" not in value:
            notes.append(_ignored(variable, f"pods do not have this machine's folders; use storage.{field}"))
        else:
            job = _with(job, variable, field, place)
            notes.append(f"{field}: {printable(place)}, from the shell's {variable}")
    if shell.get("POD_NAME"):
        notes.append(_ignored("POD_NAME", "Oarlock sets it for each task"))
    return job, notes


def _ignored(variable: str, why: str) -> str:
    return f"the shell's {variable} is ignored: {why}"


def _with(job: Job, variable: str, field: str, place: str) -> Job:
    try:
        return msgspec.structs.replace(job, storage=msgspec.structs.replace(job.storage, **{field: place}))
    except FieldError as problem:
        raise JobError(f"the shell's {variable}: {problem.problem}; unset it") from None
