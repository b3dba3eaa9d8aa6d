"""The control group of this process: a container's limits, and how many out-of-memory kills there were.

Each file has two paths: the first in version 2, the second in version 1.
"""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def kills() -> int:
    """How many processes were killed for lack of memory so far; 0 if the kernel does not count.

    A process that gets SIGKILL cannot report where it came from.
    """
    for path in (_own() / "memory.events", _ROOT / "memory" / "memory.oom_control"):
        found = re.search(r"^oom_kill (\d+)$", _read(path), re.MULTILINE)
        if found:
            return int(found[1])
    return 0


def memory_limit() -> int | None:
    """How many bytes this process may use; None if there is no limit."""
    return _number(_own() / "memory.max", _ROOT / "memory" / "memory.limit_in_bytes")


def free_memory() -> int:
    """How many bytes this process can get without reclaiming any; 0 if that is not known."""
    found = re.search(r"^MemFree: +(\d+) kB$", _read(Path("/proc/meminfo")), re.MULTILINE)
    free = 1024 * int(found[1]) if found else 0
    limit = memory_limit()
    if limit is None:
        return free
    used = _number(_own() / "memory.current", _ROOT / "memory" / "memory.usage_in_bytes")
    return 0 if used is None else min(free, max(0, limit - used))


def pids_limit() -> int | None:
    """How many processes and threads are allowed; None if there is no limit."""
    return _number(_own() / "pids.max", _ROOT / "pids" / "pids.max")


def _own() -> Path:
    """The folder of this process's group in version 2. In most containers a namespace makes it the root."""
    found = re.search(r"^0::/(.*)$", _read(Path("/proc/self/cgroup")), re.MULTILINE)
    own = _ROOT / found[1] if found else _ROOT
    return own if own.exists() else _ROOT


def _number(*paths: Path) -> int | None:
    """The content of the first of these files that exists; None if it is `max`."""
    text = next(filter(None, map(_read, paths)), "").strip()
    return int(text) if text.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
