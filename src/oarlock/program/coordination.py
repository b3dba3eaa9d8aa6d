"""Whether a program with parameter servers has the task that it needs to lead them."""

from __future__ import annotations

from pathlib import Path

from oarlock.job.model import FieldError, Job
from oarlock.program import frameworks, imports

_STRATEGIES = ("ParameterServerStrategy", "ParameterServerStrategyV2")


def check(job: Job, folder: Path) -> None:
    """Raise FieldError for ps without a chief if the program uses TensorFlow 2's ParameterServerStrategy.

    Its workers only serve, and a coordinator that is not a worker gives them their steps: without one, all
    tasks wait for each other silently. In a TensorFlow 1 program, worker 0 leads.
    """
    if not job.roles.ps or job.roles.chief:
        return
    for name in imports.scan(folder, *frameworks.python_of(job)).names:
        if name.rpartition(".")[2] in _STRATEGIES and ".compat.v1." not in name:
            raise FieldError(
                ("roles", "ps"),
                "the program uses ParameterServerStrategy, and there is no chief to give the workers their"
                " steps, so all tasks would wait forever: add --chief, or roles.chief: 1 to the job file",
            )
