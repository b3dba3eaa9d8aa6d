"""Whether the kernel killed somebody here for memory. A process that gets SIGKILL cannot say by whom."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def kills() -> int:
    """How many processes of this control group it has killed so far; 0 where nobody counts."""
    for path in (_own() / "memory.events", _ROOT / "memory" / "memory.oom_control"):
        found = re.search(r"^oom_kill (\d+)$", _read(path), re.MULTILINE)
        if found:
            return int(found[1])
    return 0


def _own() -> Path:
    """Our group, of version 2: the root where there is a namespace for it, as in most containers."""
    found = re.search(r"^0::/(.*)$", _read(Path("/proc/self/cgroup")), re.MULTILINE)
    own = _ROOT / found[1] if found else _ROOT
    return own if own.exists() else _ROOT


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
