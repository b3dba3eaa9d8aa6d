"""Which GPUs a task sees, and the variables for that. Pure; travels into pods.

An empty variable hides every GPU. CUDA numbers GPUs by speed unless a variable makes it number them like
`nvidia-smi`. AMD's HIP counts within what ROCR leaves, so its numbers start at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from oarlock.run.cluster import Task
from oarlock.run.contract import Gang, trainers_beside
from oarlock.run.quick_dataclass import dataclass

CUDA, CUDA_ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
ROCR, HIP = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a run's tasks."""

    tasks: dict[str, list[str]] = field(default_factory=dict)  # a task that is missing here sees all GPUs
    make: str = "nvidia"  # or amd
    by_bus: bool = False  # their numbers are those of nvidia-smi
    # A trainer sees the GPUs of all trainers on its machine and uses the one of its LOCAL_RANK, as under
    # torchrun. If false, a task sees only its own.
    by_local_rank: bool = False

    def variables(self, gang: Gang, task: Task) -> dict[str, str]:
        """The variables for one task of a generation; none if it sees all GPUs."""
        seen = self.tasks.get(task.name)
        if not seen:
            return {} if seen is None else dict.fromkeys((CUDA, ROCR, HIP), "")
        if self.by_local_rank and task.is_trainer:
            beside = trainers_beside(gang, task)
            seen = [gpu for name in beside for gpu in self.tasks.get(name, [])]
        return self._naming(seen)

    def _naming(self, seen: Sequence[str]) -> dict[str, str]:
        if self.make == "amd":
            return {ROCR: ",".join(seen), HIP: ",".join(map(str, range(len(seen))))}
        return {CUDA: ",".join(seen), **({CUDA_ORDER: "PCI_BUS_ID"} if self.by_bus else {})}
