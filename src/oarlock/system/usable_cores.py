"""How many cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Of this machine; a pod is told its share of one."""
    share = os.environ.get("OARLOCK_CORES", "")
    if share.isdecimal() and int(share):
        return int(share)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
