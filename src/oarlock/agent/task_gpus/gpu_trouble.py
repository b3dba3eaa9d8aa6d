"""Why a task failed, if its GPU was involved: one line that says which GPU, what and what to do. Pure.

The evidence is the end of the task's output, and what the kernel logged about GPUs while it ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from oarlock.agent.task_gpus.gpu_claim import GpuClaim
from oarlock.run.gpu_facts.gpu_failures import GpuFailure, Kind, in_bytes, in_kernel_log, in_words
from oarlock.system.gpus.gpu_reading import GpuReading, bus_of

_MUCH, _SHARE = 256 << 20, 0.01  # bytes and part of a GPU's memory: less does not decide if a program fits
_HARDWARE = ("lost", "faulty")
_MOST_HOLDERS = 3


class Trouble(NamedTuple):
    """The explanation of a failed task."""

    kind: Kind
    text: str


def explain(
    words: str, kernel: Sequence[str], claim: GpuClaim, gpus: Sequence[GpuReading], pid: int | None
) -> Trouble | None:
    """Return the trouble of a failed task; None if no GPU was involved. `kernel`: what the kernel logged
    while it ran; `gpus`: all GPUs of this machine, as they were before."""
    own = claim.among(gpus, pid)
    said = in_words(words)
    logged = [failure for line in kernel if (failure := in_kernel_log(line)) and _is_ours(failure, own, pid)]
    hardware = next((failure for failure in logged if failure.kind in _HARDWARE), None)
    failure = hardware or said or next(iter(logged), None)
    if failure is None:
        return None
    gpu = _gpu_of(failure, claim, gpus, own)
    if failure.kind == "memory" and gpu is not None:
        failure = replace(failure, holders=_others(failure, gpu, pid))
    return Trouble(failure.kind, _sentence(failure, gpu))


def _others(failure: GpuFailure, gpu: GpuReading, pid: int | None) -> dict[int, str]:
    """Other processes with much of the GPU's memory, as the framework's message lists them or the driver."""
    said = failure.holders
    held = {one: in_bytes(size) for one, size in said.items()} or gpu.holders
    much = max(_MUCH, gpu.memory_total * _SHARE)
    others = [one for one in held if one != pid and held[one] >= much]
    largest = sorted(others, key=lambda one: -held[one])[:_MOST_HOLDERS]
    return {one: said.get(one, f"{held[one] / 2**30:.2f} GiB") for one in largest}


def _is_ours(failure: GpuFailure, own: Sequence[GpuReading], pid: int | None) -> bool:
    """Judge by its process, or by its GPU. If no GPU is known, every failing one counts as the task's."""
    if failure.pid is not None and failure.pid == pid:
        return True
    return not own or any(gpu.bus == bus_of(failure.bus or "") for gpu in own)


def _gpu_of(
    failure: GpuFailure, claim: GpuClaim, gpus: Sequence[GpuReading], own: Sequence[GpuReading]
) -> GpuReading | None:
    if failure.bus is not None:
        return next((gpu for gpu in gpus if gpu.bus == bus_of(failure.bus)), None)
    if failure.ordinal is not None and (gpu := claim.numbered(failure.ordinal, gpus)) is not None:
        return gpu
    return own[0] if len(own) == 1 else None


def _sentence(failure: GpuFailure, gpu: GpuReading | None) -> str:
    if gpu is not None:
        who = f"GPU {gpu.number} ({gpu.name})"
    elif failure.bus is not None:
        who = f"the GPU at {bus_of(failure.bus)}"
    else:
        who = "its GPU" if failure.ordinal is None else f"GPU {failure.ordinal}"
    what = f"{who}{failure.what[2:]}" if failure.what.startswith("it ") else f"{who}: {failure.what}"
    held = ", ".join(f"process {pid} has {size}" for pid, size in failure.holders.items())
    fix = f"{held} of it: end it if it is not yours, or {failure.fix}" if held else failure.fix
    return f"{what}; {fix}"
