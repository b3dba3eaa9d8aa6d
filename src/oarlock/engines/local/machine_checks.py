"""Checks of this machine. Each returns a name, a state, a detail and a fix."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import platform
import shutil
import socket
import struct
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from oarlock.engines.before_start import Finding, finding
from oarlock.engines.local import gpu_devices, gpu_shares
from oarlock.records import runs
from oarlock.system import control_group, free_ports, private_network
from oarlock.system.processors import usable_cores
from oarlock.units import size

_LITTLE_SPACE = 1_000_000_000
_LITTLE_SHARED = 64 * 1024 * 1024 + 1  # what Docker gives by default is too little for data loaders
_GET_FLAGS, _UP, _LOOPBACK = 0x8913, 0x1, 0x8  # SIOCGIFFLAGS, IFF_UP, IFF_LOOPBACK


def system() -> Finding:
    """Check the operating system."""
    detail = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if platform.system() == "Linux":
        return finding("system", "ok", detail)
    return finding("system", "warning", f"{detail}: tasks are spawned, not forked", "on Windows use WSL")


def cores() -> Finding:
    """Count the processors."""
    return finding("cores", "ok", str(usable_cores()))


def memory() -> Finding:
    """Measure the memory, within the limits of a container."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return finding("memory", "ok", "unknown")
    return finding("memory", "ok", size(min(total, control_group.memory_limit() or total)))


def gpus() -> Finding:
    """Count the GPUs, and say which runs have them."""
    devices = gpu_devices.find(os.environ)
    names = Counter(gpu.name for gpu in devices.all)
    detail = ", ".join(f"{count} x {name}" for name, count in names.items()) or "none"
    if devices.limited_by:
        detail += f"; {devices.limited_by} allows {len(devices.visible)}"
    holders = Counter(gpu_shares.taken_by(devices).values()) if devices.all else {}
    return finding(
        "GPUs", "ok", "; ".join([detail, *(f"{name} has {count}" for name, count in holders.items())])
    )


def home() -> Finding:
    """Check that records can be written."""
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
    """Check that ports can be opened."""
    try:
        free_ports.free_ports(2)
    except OSError as problem:
        return finding("ports", "failed", f"no port of 127.0.0.1 can be bound: {problem}", "is `lo` up?")
    return finding("ports", "ok", "127.0.0.1 can be bound")


def network() -> Finding:
    """Check from where local runs can be reached."""
    try:
        names = [name for _, name in socket.if_nameindex() if _is_outward(name)]
    except OSError:
        names = []
    if not names or importlib.util.find_spec("tensorflow") is None:
        return finding("network", "ok", "runs listen on 127.0.0.1 only")
    detail = (
        f"TensorFlow listens on every interface, including {' and '.join(names)}, "
        "and runs requests from anyone who connects"
    )
    why = private_network.refusal()
    if why is not None:
        return finding("network", "warning", detail, f"use a firewall: no network: private here ({why})")
    return finding("network", "warning", detail, "network: private in the job keeps others out")


def _is_outward(interface: str) -> bool:
    """/sys may show the interfaces of another network namespace, so the kernel is asked."""
    if platform.system() != "Linux":
        return not interface.startswith("lo")
    request = struct.pack("16sH22x", interface.encode(), 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _GET_FLAGS, request)
    flags = struct.unpack("16sH22x", answer)[1]
    return bool(flags & _UP) and not flags & _LOOPBACK


def shared_memory() -> Finding:
    """Check /dev/shm, which data loaders use."""
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK):
        return finding("/dev/shm", "warning", "not there or not writable: data loaders may fail")
    free = shutil.disk_usage(place).free
    if free < _LITTLE_SHARED:
        return finding(
            "/dev/shm", "warning", f"{size(free)} free", "in a container: docker run --shm-size=2g"
        )
    return finding("/dev/shm", "ok", f"{size(free)} free")


CHECKS: tuple[Callable[[], Finding], ...] = (
    system,
    cores,
    memory,
    gpus,
    home,
    loopback,
    network,
    shared_memory,
)
