"""Refuses unequal GPUs under MultiWorkerMirroredStrategy, whose behavior TensorFlow leaves undefined."""

from __future__ import annotations

from pathlib import Path

from oarlock.errors import JobError
from oarlock.job.model import Job
from oarlock.program import frameworks, imports
from oarlock.run.cluster import TRAINERS
from oarlock.wording import listed

_STRATEGY = "MultiWorkerMirroredStrategy"


def check(job: Job, folder: Path) -> None:
    """Raise JobError if trainers have different numbers of GPUs and the program names that strategy.

    With parameter servers, another strategy trains.
    """
    trainers = [role for name in TRAINERS if (role := getattr(job.roles, name)) is not None]
    counts = sorted({part.gpus_each or 0 for role in trainers for part in role.parts}, reverse=True)
    if len(counts) == 1 or job.roles.ps is not None:
        return
    names = imports.scan(folder, *frameworks.python_of(job)).names
    if any(name.rpartition(".")[2] == _STRATEGY for name in names):
        raise JobError(
            f"roles: the program names {_STRATEGY}, which TensorFlow defines only for equal numbers of GPUs, "
            f"and its tasks have {listed(map(str, counts), 'and')}; give every chief and worker as many, "
            "or a process for each GPU (processes)"
        )
