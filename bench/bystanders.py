"""How much of the machine others used while we measured: figures from a busy machine are worth less."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path


class Bystanders:
    """From its making until it is printed."""

    def __init__(self) -> None:
        self._busy, self._ours, self._began = _busy(), _ours(), time.monotonic()

    @property
    def cores(self) -> float:
        used = (_busy() - self._busy) - (_ours() - self._ours)
        return max(0.0, used / (time.monotonic() - self._began))

    def __str__(self) -> str:
        return f"other processes used {self.cores:.2f} of {os.cpu_count()} cores meanwhile"


def _busy() -> float:
    """Seconds that all cores together were not idle. Stolen time counts: another guest had it."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, _cpu_line()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _cpu_line() -> list[str]:
    try:
        return Path("/proc/stat").read_text().splitlines()[0].split()
    except FileNotFoundError:  # not Linux: nothing is known
        return ["cpu"] + ["0"] * 8


def _ours() -> float:
    """This process and all below it that have ended; everything measured has, by the time we are asked."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
