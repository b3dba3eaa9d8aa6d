"""What a run needs of this machine, looked at one by one. Each look gives name, state, detail and fix."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from oarlock import runs
from oarlock.agent import defaults, ports
from oarlock.cli.output import size

Finding = dict[str, object]

_LITTLE_SPACE = 1_000_000_000
_LITTLE_SHARED = 64 * 1024 * 1024 + 1  # what Docker gives by default is too little for data loaders


def finding(name: str, state: str, detail: str, fix: str | None = None) -> Finding:
    """`state` is ok, warning or failed; a failure means that nothing can run."""
    return {"name": name, "state": state, "detail": detail, "fix": fix}


def system() -> Finding:
    detail = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if platform.system() == "Linux":
        return finding("system", "ok", detail)
    return finding("system", "warning", f"{detail}: tasks are spawned, not forked", "on Windows use WSL")


def cores() -> Finding:
    return finding("cores", "ok", str(defaults.cores()))


def memory() -> Finding:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = Path("/sys/fs/cgroup/memory.max")
        if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
            total = min(total, int(text))
    except (OSError, ValueError):
        return finding("memory", "ok", "unknown")
    return finding("memory", "ok", size(total))


def home() -> Finding:
    place = runs.home()
    there = next(path for path in (place, *place.parents) if path.exists())
    shown = str(place) if there == place else f"{place} (will be created)"
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except OSError as problem:
        fix = "set OARLOCK_HOME to a folder that you can write to"
        return finding("OARLOCK_HOME", "failed", f"{shown} cannot be written: {problem.strerror}", fix)
    state = "ok" if free >= _LITTLE_SPACE else "warning"
    return finding("OARLOCK_HOME", state, f"{shown}, {size(free)} free")


def loopback() -> Finding:
    try:
        ports.free_ports(2)
    except OSError as problem:
        return finding("ports", "failed", f"no port of 127.0.0.1 can be bound: {problem}", "is `lo` up?")
    return finding("ports", "ok", "127.0.0.1 can be bound")


def shared_memory() -> Finding:
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK):
        return finding("/dev/shm", "warning", "not there or not writable: data loaders may fail")
    free = shutil.disk_usage(place).free
    if free < _LITTLE_SHARED:
        return finding(
            "/dev/shm", "warning", f"{size(free)} free", "in a container: docker run --shm-size=2g"
        )
    return finding("/dev/shm", "ok", f"{size(free)} free")


CHECKS: tuple[Callable[[], Finding], ...] = (system, cores, memory, home, loopback, shared_memory)
