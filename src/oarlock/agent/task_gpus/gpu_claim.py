"""Which GPUs belong to a task, as far as its agent can know. Pure.

A run that requests GPUs gets them by number. In a pod, and in a run that requests none, a task sees all GPUs.
Then those that its process holds count, or those of its LOCAL_RANK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oarlock.run.gpu_facts.gpu_view import CUDA, HIP, ROCR, Gpus
from oarlock.run.quick_dataclass import dataclass
from oarlock.system.gpus.gpu_reading import GpuReading


@dataclass(frozen=True)
class GpuClaim:
    """What the launch of a task determines about its GPUs."""

    given: tuple[str, ...] | None = None  # None: not determined
    seen: tuple[str, ...] | None = None  # in the order of its variable; None: all
    local_rank: int = 0
    local_world: int = 1
    logged: int = 0  # lines about GPUs that the kernel had logged before: see `KernelLog.mark`

    def among(self, gpus: Sequence[GpuReading], pid: int | None) -> list[GpuReading]:
        """Return this task's own GPUs. A task that got none by number may turn out to use none."""
        if self.given is not None:
            return _named(self.given, gpus)
        seen = list(gpus) if self.seen is None else _named(self.seen, gpus)
        held = [gpu for gpu in seen if pid in gpu.holders]
        if held or self.local_world <= 1 or len(seen) % self.local_world:
            return held or seen
        each = len(seen) // self.local_world
        return seen[self.local_rank * each :][:each]

    def numbered(self, ordinal: int, gpus: Sequence[GpuReading]) -> GpuReading | None:
        """Return the GPU that has this number in the task, which counts only those that it sees."""
        seen = list(gpus) if self.seen is None else _named(self.seen, gpus)
        return seen[ordinal] if ordinal < len(seen) else None


def claim_of(gpus: Gpus, task: str, env: Mapping[str, str]) -> GpuClaim:
    """Return the claim of a task launched with these variables."""
    given = gpus.tasks.get(task)
    words = next((env[name] for name in (CUDA, ROCR, HIP) if name in env), None)
    return GpuClaim(
        given=None if given is None else tuple(given),
        seen=None if words is None else tuple(word.strip() for word in words.split(",") if word.strip()),
        local_rank=_whole(env.get("LOCAL_RANK"), 0),
        local_world=_whole(env.get("LOCAL_WORLD_SIZE"), 1),
    )


def _named(words: Sequence[str], gpus: Sequence[GpuReading]) -> list[GpuReading]:
    found = (next((gpu for gpu in gpus if gpu.is_called(word)), None) for word in words)
    return [gpu for gpu in found if gpu is not None]


def _whole(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default
