"""Processors: how many this process may use, and whether processes compute, by the time they use."""

from __future__ import annotations

import os
import time
from pathlib import Path

from oarlock.system import processes

_IDLE = 0.02  # of one processor: used by threads that only wait and check a clock
_TICKS = 2  # the kernel counts in hundredths of a second: one may be chance


def usable_cores() -> int:
    """The cores of this machine that this process may use. In a pod, a variable gives its share."""
    share = os.environ.get("OARLOCK_CORES", "")
    if share.isdecimal() and int(share):
        return int(share)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


class ProcessorTime:
    """Remembers each process's time when it was last seen to compute."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, int]] = {}  # pid -> when, and ticks

    def is_used(self, pid: int) -> bool:
        """Whether it has computed since the last time this was true. The first call for a process is true."""
        now, used = time.monotonic(), sum(map(_ticks, [pid, *processes.descendants(pid)]))
        then, before = self._seen.get(pid, (now, used + 1))
        most = max(_TICKS, _IDLE * (now - then) * os.sysconf("SC_CLK_TCK"))
        if used < before or used - before > most:  # less: one of its descendants has ended
            self._seen[pid] = now, used
            return True
        return False


def _ticks(pid: int) -> int:
    fields = processes.stat_fields(Path(f"/proc/{pid}"))
    return 0 if fields is None else int(fields[11]) + int(fields[12])
