"""NVIDIA's management library, called through ctypes: every driver has it, and containers get it mounted.

A call may block as long as the driver does, which is forever after some GPU failures: call it in a thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from oarlock.system.gpus.gpu_reading import GpuReading, bus_of

# The linker's own search first, then where WSL and GKE put it.
_NAMES = (
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
)
_TEXT = 96  # bytes: the longest name or UUID in the library
_MOST_PROCESSES = 256
_UNKNOWN = 2**64 - 1  # the driver does not report a process's memory


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        *[(name, ctypes.c_uint) for name in ("domain", "bus", "device", "id", "subsystem")],
        ("address", ctypes.c_char * 32),
    ]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """The initialized library. What it does not report is left out."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def read(self) -> list[GpuReading]:
        """Return the readings of all GPUs, in the order of nvidia-smi. A lost GPU is missing."""
        found: list[GpuReading] = []
        count = ctypes.c_uint()
        if not self._ask("nvmlDeviceGetCount_v2", ctypes.byref(count)):
            return []
        for number in range(count.value):
            device = ctypes.c_void_p()
            if self._ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(device)):
                found += list(self._slices(device)) or self._reading(device, str(number))
        return found

    def _slices(self, device: ctypes.c_void_p) -> Iterator[GpuReading]:
        mode, pending = ctypes.c_uint(), ctypes.c_uint()
        if not self._ask("nvmlDeviceGetMigMode", device, ctypes.byref(mode), ctypes.byref(pending)):
            return
        for number in range(self._number("nvmlDeviceGetMaxMigDeviceCount", device) or 0 if mode.value else 0):
            part = ctypes.c_void_p()
            index = ctypes.c_uint(number)
            if self._ask("nvmlDeviceGetMigDeviceHandleByIndex", device, index, ctypes.byref(part)):
                yield from self._reading(part, "", self._bus(device))

    def _reading(self, device: ctypes.c_void_p, number: str, bus: str = "") -> list[GpuReading]:
        memory = _Memory()
        if not self._ask("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory)):
            return []
        uuid = self._text("nvmlDeviceGetUUID", device)
        rates = _Utilization()
        is_known = self._ask("nvmlDeviceGetUtilizationRates", device, ctypes.byref(rates))
        milliwatts = self._number("nvmlDeviceGetPowerUsage", device)
        return [
            GpuReading(
                number=number or uuid,
                name=self._text("nvmlDeviceGetName", device) or "GPU",
                uuid=uuid,
                bus=bus or self._bus(device),
                memory=memory.used,
                memory_total=memory.total,
                power=None if milliwatts is None else milliwatts / 1000,
                utilization=rates.gpu / 100 if is_known else None,
                is_shared=not self._number("nvmlDeviceGetComputeMode", device),
                holders=self._holders(device),
            )
        ]

    def _holders(self, device: ctypes.c_void_p) -> dict[int, int]:
        count, listed = ctypes.c_uint(_MOST_PROCESSES), (_Process * _MOST_PROCESSES)()
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        if not self._ask(name, device, ctypes.byref(count), listed):
            return {}
        return {
            one.pid: 0 if one.memory == _UNKNOWN else one.memory
            for one in listed[: min(count.value, _MOST_PROCESSES)]
        }

    def _bus(self, device: ctypes.c_void_p) -> str:
        pci = _Pci()
        is_known = self._ask("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci))
        return bus_of(pci.address.decode(errors="replace")) if is_known else ""

    def _text(self, name: str, device: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_TEXT)
        is_known = self._ask(name, device, text, ctypes.c_uint(_TEXT))
        return text.value.decode(errors="replace") if is_known else ""

    def _number(self, name: str, device: ctypes.c_void_p) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._ask(name, device, ctypes.byref(value)) else None

    def _ask(self, name: str, *args: Any) -> bool:
        """Whether the library has this function, and answers."""
        function = getattr(self._library, name, None)
        return function is not None and function(*args) == 0


def open_library() -> Nvml | None:
    """Load and initialize the library; None if there is none, or no driver that answers it."""
    for name in _NAMES:
        try:
            library = ctypes.CDLL(name)
            return Nvml(library) if library.nvmlInit_v2() == 0 else None
        except (OSError, AttributeError):
            continue
    return None
