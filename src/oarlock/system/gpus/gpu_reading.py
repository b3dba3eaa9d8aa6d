"""What one GPU reports at one time. Pure; travels into pods."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_BUS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?", re.IGNORECASE)


@dataclass(frozen=True)
class GpuReading:
    """One GPU, or a MIG slice of one: its memory in bytes, its power in watts."""

    number: str  # as nvidia-smi and CUDA_DEVICE_ORDER=PCI_BUS_ID number them; for a slice its UUID
    name: str
    uuid: str
    bus: str  # 0000:3b:00
    memory: int  # in use, by any process
    memory_total: int
    power: float | None = None
    utilization: float | None = None  # 0 to 1: the share of the time in which it computed
    holders: dict[int, int] = field(default_factory=dict)  # pid -> memory, for the visible processes
    is_shared: bool = True  # False: only one process at a time may use it (its compute mode)

    @property
    def key(self) -> str:
        """What no other GPU of this machine has. Some of AMD's have no UUID, and a part of one no address."""
        return self.uuid or self.bus or self.number

    def is_called(self, word: str) -> bool:
        """Whether a word in a variable that selects GPUs means this one: by number, or by UUID."""
        return word == self.number or (len(word) > len("GPU-") and self.uuid.startswith(word))


def bus_of(text: str) -> str:
    """Return a PCI address in one form, however the library or the kernel writes it; empty if it is none."""
    found = _BUS.search(text)
    if found is None:
        return ""
    domain, bus, device = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}".lower()
