"""Which GPUs of a pod each process sees, if the pod has several processes. Pure.

PyTorch programs choose a GPU by LOCAL_RANK, and see all. Any other framework would take every GPU in every
process.
"""

from __future__ import annotations

from oarlock.engines.kubernetes.manifests import groups
from oarlock.job.model import Job
from oarlock.run.gpu_facts.gpu_view import Gpus


def of(job: Job, framework: str) -> Gpus:
    """The GPUs of each process that shares a pod with others."""
    if framework == "torch":
        return Gpus()
    found: dict[str, list[str]] = {}
    tasks: dict[str, int] = {}  # of each role, so far
    for group in groups.of(job):
        part, each = group.part, group.part.gpus_each
        first = tasks.get(group.role, 0)
        tasks[group.role] = first + group.count * part.processes
        if each and part.processes > 1:
            found.update(
                {
                    f"{group.role}-{index}": _share(index - first, part.processes, each)
                    for index in range(first, tasks[group.role])
                }
            )
    return Gpus(found)


def _share(process: int, processes: int, each: int) -> list[str]:
    start = process % processes * each
    return [str(number) for number in range(start, start + each)]
