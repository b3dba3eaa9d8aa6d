"""The GPUs of the machine that an agent runs on, as its host uses them."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from oarlock.agent.task_gpus import gpu_trouble
from oarlock.agent.task_gpus.gpu_claim import GpuClaim, claim_of
from oarlock.agent.task_gpus.gpu_trouble import Trouble
from oarlock.run.gpu_facts.gpu_view import Gpus
from oarlock.system.gpus.gpu_reading import GpuReading
from oarlock.system.gpus.gpu_watch import GpuWatch, Look, is_used_by
from oarlock.system.gpus.kernel_log import KernelLog

_STALE = 30.0  # seconds: a driver silent for longer than this hangs
_SLACK = 256 << 20  # bytes by which a GPU's use may have grown with no process of ours on it
_CONTEXT = 768 << 20  # bytes of a process that stands by there (`zygote/gpu_standby.py`): 0.5 GiB on an H200
_SMALL = 0.01  # the part of a GPU's memory that such a process may take while the task runs


class Claimant(NamedTuple):
    """One process of a task, alive or not."""

    claim: GpuClaim
    pid: int | None
    is_followed: bool = False  # by a process that has already opened its GPUs


class MachineGpus:
    """What the GPUs report, and what follows from it. Never waits for a driver."""

    def __init__(
        self,
        watch: GpuWatch | None = None,
        log: KernelLog | None = None,
        is_user: Callable[[int], bool] = is_used_by,
    ) -> None:
        self._watch = watch or GpuWatch()
        self._log = log or KernelLog()
        self._is_user = is_user
        self._idle: dict[str, int] = {}  # GPU -> memory in use while no task of ours was there
        self._gone_at = 0.0  # when the last task was gone (monotonic); infinite while there is one
        self._has_launched = False
        self._seen: set[int] = set()  # our processes that the driver has listed
        self._users: set[int] = set()  # our processes that have used a GPU without being assigned one

    def start(self) -> None:
        """Start to read the GPUs, if there are any."""
        self._watch.start()

    def claim(self, gpus: Gpus, task: str, env: Mapping[str, str]) -> GpuClaim:
        """Return the claim of a task that is launched now: earlier failures of its GPUs are not its own."""
        look = self._watch.newest()
        if look is not None:  # it has ended, so this task is not in it
            self._learn(look)
        self._gone_at, self._has_launched = math.inf, True
        return replace(claim_of(gpus, task, env), logged=self._log.mark())

    def figures(self, claimants: Sequence[Claimant]) -> list[dict[str, Any]] | None:
        """Return the readings of each process's GPUs, none for one that uses none. None: no GPU is here."""
        if self._watch.has_none:
            return None
        look = self._watch.newest(time.monotonic() - _STALE)
        if look is None:
            return [{} for _ in claimants]
        ours = {one.pid for one in claimants}
        self._seen |= {pid for gpu in look.gpus for pid in gpu.holders if pid in ours}
        self._learn(look)
        return [_summed(self._own(look.gpus, one)) for one in claimants]

    def held(self, dead: Sequence[Claimant], since: float) -> str | None:
        """Return which GPUs of dead processes still hold their memory; empty if none does. None if that is
        not known yet. `since`: when they were gone, on the monotonic clock, and no other task is here."""
        self._gone_at = min(self._gone_at, since)
        if self._watch.has_none or not dead or not any(self._may_hold(one) for one in dead):
            return ""
        look = self._watch.newest(since)
        if look is None:
            return None
        gone = {one.pid for one in dead}
        own: dict[str, GpuReading] = {}
        allowed: Counter[str] = Counter()  # bytes above what was in use before
        for one in dead:
            for gpu in one.claim.among(look.gpus, one.pid):
                own[gpu.key] = gpu
                allowed[gpu.key] += _CONTEXT if one.is_followed else 0
        held = [gpu for gpu in own.values() if self._is_held(gpu, gone, _SLACK + allowed[gpu.key])]
        self._learn(look)
        return ", ".join(_held(gpu) for gpu in held)

    def room(self, one: Claimant) -> int:
        """Return the free bytes of a task's GPU with the fewest; 0 if they are unknown, if a GPU is for one
        process only, or so small that the task would miss what a process that stands by takes."""
        look = self._watch.newest(time.monotonic() - _STALE)
        own = self._own(look.gpus, one) if look is not None else []
        if any(not gpu.is_shared or gpu.memory_total * _SMALL < _CONTEXT for gpu in own):
            return 0
        return min((gpu.memory_total - gpu.memory for gpu in own), default=0)

    def trouble(self, claimant: Claimant, words: str) -> Trouble | None:
        """Return why a task failed whose output ends in `words`, if a GPU was involved."""
        look = self._watch.newest()
        gpus = () if look is None else look.gpus
        logged = self._log.about_gpus(claimant.claim.logged)
        return gpu_trouble.explain(words, logged, claimant.claim, gpus, claimant.pid)

    def _learn(self, look: Look) -> None:
        """Note what is in use without our tasks. After the first of them only if it is less than before: the
        driver may still be freeing what they had."""
        if look.began < self._gone_at:
            return
        for gpu in look.gpus:
            before = self._idle.get(gpu.key, gpu.memory) if self._has_launched else gpu.memory
            self._idle[gpu.key] = min(gpu.memory, before)

    def _own(self, gpus: Sequence[GpuReading], one: Claimant) -> list[GpuReading]:
        if one.claim.given is None and one.pid is not None and self._is_user(one.pid):
            self._users.add(one.pid)
        return one.claim.among(gpus, one.pid) if self._may_hold(one) else []

    def _may_hold(self, one: Claimant) -> bool:
        return one.pid in self._users if one.claim.given is None else bool(one.claim.given)

    def _is_held(self, gpu: GpuReading, gone: set[int | None], allowed: int) -> bool:
        """Judge by the driver's list of processes if it shows ours, otherwise by the memory in use."""
        if gone & gpu.holders.keys():
            return True
        if gone & self._seen:
            return False
        return gpu.key in self._idle and gpu.memory > self._idle[gpu.key] + allowed


def _summed(gpus: Sequence[GpuReading]) -> dict[str, Any]:
    if not gpus:
        return {}
    powers = [gpu.power for gpu in gpus if gpu.power is not None]
    rates = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    figures: dict[str, Any] = {
        "gpus": [gpu.number for gpu in gpus],
        "memory": sum(gpu.memory for gpu in gpus),
        "memory_total": sum(gpu.memory_total for gpu in gpus),
    }
    if powers:
        figures["power"] = round(sum(powers), 1)
    if rates:
        figures["utilization"] = round(sum(rates) / len(rates), 3)
    return figures


def _held(gpu: GpuReading) -> str:
    return f"GPU {gpu.number} has {gpu.memory / 2**30:.2f} GiB in use"
