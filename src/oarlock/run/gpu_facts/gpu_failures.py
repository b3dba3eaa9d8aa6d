"""What GPU failures look like in messages of torch, JAX, TensorFlow, NCCL and the driver, and what to do
about each. Pure; travels into pods.

Each row of the table is a pattern, what it means and one sentence of advice. The first row that matches
counts, so causes come before their consequences.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Literal

from oarlock.run.quick_dataclass import dataclass

# memory: it ran out. lost, faulty: the device, not the program. program: one of its kernels. busy: another
# process has the GPU. peer: another task failed, or the network. setup: driver and program do not fit.
Kind = Literal["memory", "lost", "faulty", "program", "busy", "peer", "setup"]
KINDS: tuple[Kind, ...] = ("memory", "lost", "faulty", "program", "busy", "peer", "setup")


@dataclass(frozen=True)
class GpuFailure:
    """One failure, as far as its text describes it."""

    kind: Kind
    what: str
    fix: str
    ordinal: int | None = None  # the GPU's number in the task
    bus: str | None = None  # the GPU, as in the kernel log
    pid: int | None = None  # the process, as in the kernel log
    holders: dict[int, str] = field(default_factory=dict)  # pid -> how much memory another process holds


_SMALLER = "use smaller batches, or more GPUs with a part of the batch each"
_RESTART_GPU = "reset the GPU (nvidia-smi --gpu-reset) or restart the machine, and replace it if that repeats"
_CRASH = "run it under compute-sanitizer"
_BLOCKING = "set CUDA_LAUNCH_BLOCKING=1 in env to see which line"

_WORDS: tuple[tuple[str, Kind, str, str], ...] = (
    (r"device-side assert triggered|cudaErrorAssert|CUDA_ERROR_ASSERT", "program",
     "a kernel's assertion failed", f"look for an index or a label that is out of range; {_BLOCKING}"),
    (r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|misaligned address", "program",
     "a kernel accessed memory that is not its own", f"{_BLOCKING}, or {_CRASH}"),
    (r"uncorrectable (NVLink|ECC) error|CUDA_ERROR_ECC_UNCORRECTABLE", "faulty",
     "its memory has an error that cannot be corrected", _RESTART_GPU),
    (r"GPU is lost|fallen off the bus|CUDA_ERROR_DEVICE_UNAVAILABLE.*lost", "lost",
     "it no longer answers", "restart the machine, and check its power, cooling and seat"),
    (r"devices?(\(s\))? (is/)?are busy or unavailable|device is busy or unavailable", "busy",
     "it is busy or unavailable",
     "end the other process if it computes exclusively (nvidia-smi -q -d COMPUTE), or reset the GPU"),
    (r"no kernel image is available for execution", "setup",
     "the program's kernels are not built for this GPU", "install a build of the framework for it"),
    (r"CUDA driver version is insufficient|forward compatibility was attempted", "setup",
     "the driver is too old for the program's CUDA",
     "update the driver, or install a build for an older CUDA"),
    (r"no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE", "setup",
     "the program finds no GPU", "compare `oarlock status` and nvidia-smi; is `gpu` set in the job file?"),
    (r"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED", "program",
     "a kernel crashed", f"{_BLOCKING}, or {_CRASH}"),
    (r"the launch timed out and was terminated|CUDA_ERROR_LAUNCH_TIMEOUT", "program",
     "a kernel took too long", "use a GPU without a display, or smaller kernels"),
    (r"Watchdog caught collective operation timeout|NCCL communicator was aborted", "peer",
     "a collective of NCCL never ended",
     "another task hangs or ran a different collective: see its log, and `oarlock stacks` the next time"),
    (r"ncclRemoteError|remote process exited or there was a network error", "peer",
     "NCCL lost another task", "see why that one ended; if none did, it is the network between them"),
    (r"ncclInvalidUsage|Duplicate GPU detected", "setup",
     "NCCL refused the GPUs", "each task needs a GPU of its own: gpu: 1, and LOCAL_RANK's device"),
    (r"ncclSystemError", "peer",
     "NCCL could not use the system",
     "check /dev/shm and the network interface (NCCL_SOCKET_IFNAME); NCCL_DEBUG=INFO says more"),
    (r"ncclInternalError|ncclUnhandledCudaError", "peer",
     "NCCL failed", "set NCCL_DEBUG=INFO in env and read the first line with WARN"),
)  # fmt: skip

_SIZE = r"(\d+(?:\.\d+)? ?(?:[KMGT]i?B|bytes|B))"
_EXHAUSTED = re.compile(
    r"(?:CUDA|HIP) out of memory|(?:CUDA|HIP)(?: driver)? error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    r"|Triton Error \[\w+\]:[^\n]*out of memory"
    r"|RESOURCE_EXHAUSTED: (?:Out of memory while|Failed to allocate)|OOM when allocating [^\n]*GPU"
    r"|CUBLAS_STATUS_ALLOC_FAILED|ncclUnhandledCudaError.*out of memory|Cuda failure 2 'out of memory'",
    re.DOTALL,
)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+), (.*)")
_XID_PID = re.compile(r"pid='?(\d+)")
_FALLEN = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]+).*fallen off the bus", re.DOTALL
)
_AMD = re.compile(r"amdgpu ([0-9a-f:.]+): .*?(GPU reset begin|ring \S+ timeout|uncorrectable hardware error)")

_XIDS: dict[int, tuple[Kind, str, str]] = {
    13: ("program", "a kernel raised an exception", f"{_BLOCKING}, or {_CRASH}"),
    31: ("program", "a kernel accessed memory that is not its own", f"{_BLOCKING}, or {_CRASH}"),
    43: ("program", "a kernel crashed and was stopped", f"{_BLOCKING}, or {_CRASH}"),
    48: ("faulty", "its memory has an error that cannot be corrected", _RESTART_GPU),
    62: ("faulty", "its power controller has stopped", _RESTART_GPU),
    63: ("faulty", "a row of its memory is being replaced", _RESTART_GPU),
    64: ("faulty", "a row of its memory could not be replaced", _RESTART_GPU),
    74: ("faulty", "NVLink failed", _RESTART_GPU),
    79: ("lost", "it has fallen off the bus", "restart the machine, and check its power, cooling and seat"),
    92: ("faulty", "its memory has many errors", _RESTART_GPU),
    94: ("faulty", "its memory had an error that hit only this program", _RESTART_GPU),
    95: ("faulty", "its memory had an error that hit all programs", _RESTART_GPU),
    109: ("faulty", "it did not switch to another program in time", _RESTART_GPU),
    119: ("lost", "its firmware does not answer", _RESTART_GPU),
    120: ("lost", "its firmware has crashed", _RESTART_GPU),
    140: ("faulty", "its memory has an error that cannot be corrected", _RESTART_GPU),
    149: ("faulty", "NVLink failed", _RESTART_GPU),
}  # fmt: skip
_FOLLOWS = frozenset({45, 154})  # what the driver logs after another Xid


def in_words(text: str) -> GpuFailure | None:
    """Return the GPU failure in a task's last words: its exception, or the end of its log."""
    if exhausted := _EXHAUSTED.search(text):
        return _memory(text[exhausted.start() :])
    for pattern, kind, what, fix in _WORDS:
        if re.search(pattern, text):
            return GpuFailure(kind, what, fix)
    return None


def in_kernel_log(line: str) -> GpuFailure | None:
    """Return the GPU failure in a line of the kernel log."""
    if found := _XID.search(line):
        bus, number, text = found[1], int(found[2]), found[3]
        if number in _FOLLOWS:
            return None
        kind, what, fix = _XIDS.get(number, ("faulty", text.strip().rstrip("."), _RESTART_GPU))
        pid = _XID_PID.search(text)
        return GpuFailure(kind, f"{what} (Xid {number})", fix, bus=bus, pid=int(pid[1]) if pid else None)
    if found := _FALLEN.search(line):
        kind, what, fix = _XIDS[79]
        return GpuFailure(kind, what, fix, bus=found[1])
    if found := _AMD.search(line):
        return GpuFailure("faulty", f"the kernel says: {found[2]}", "restart the machine", bus=found[1])
    return None


def _memory(text: str) -> GpuFailure:
    """Read the sizes in messages of torch, JAX and TensorFlow, in this order."""
    asked = _first(
        text, rf"Tried to allocate {_SIZE}", rf"trying to allocate {_SIZE}", rf"request for {_SIZE}",
        r"with (shape ?\[[\d,]+\])",
    )  # fmt: skip
    free = _first(text, rf"of which {_SIZE} is free", rf"; {_SIZE} free")
    total = _first(text, rf"total capaci?ty of {_SIZE}", rf"; {_SIZE} total capacity")
    unused = _first(text, rf"and {_SIZE} is reserved by PyTorch but unallocated")
    ordinal = _first(
        text, r"GPU (\d+) has a total", r"\(GPU (\d+);", r"device ordinal (\d+)", r"GPU[:_](\d+)"
    )
    what = "it ran out of memory"
    what += f": {asked} more asked for" if asked else ""
    what += f"{',' if asked else ':'} {free} of {total} free" if free and total else ""
    fix = _SMALLER
    if asked and unused and in_bytes(unused) >= in_bytes(asked) > 0:
        fix = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in env (the free memory is in pieces)"
    holders = {int(pid): size for pid, size in re.findall(rf"Process (\d+) has {_SIZE} memory in use", text)}
    return GpuFailure("memory", what, fix, int(ordinal) if ordinal else None, holders=holders)


def in_bytes(size: str) -> float:
    """Return a size that torch or XLA writes as `2.26 GiB` as a number; 0 if it is none."""
    found = re.fullmatch(r"([\d.]+) ?([KMGT]?)(?:i?B|bytes)", size)
    return 0.0 if found is None else float(found[1]) * 1024 ** " KMGT".find(found[2] or " ")


def _first(text: str, *patterns: str) -> str | None:
    for pattern in patterns:
        if found := re.search(pattern, text):
            return found[1]
    return None
