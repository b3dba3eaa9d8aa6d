"""`network: private`: a network namespace for the tasks of one run, with nothing in it but loopback.

No other process can reach the tasks' ports, and the tasks can reach no other. The agent stays outside: its
connections to the tasks are inherited sockets. Linux only, and only if the machine allows it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from oarlock.system import processes

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET
_SET_FLAGS, _UP = 0x8914, 0x1  # SIOCSIFFLAGS, IFF_UP
_WHY = {errno.ENOSPC: "user.max_net_namespaces or user.max_user_namespaces is reached"}
_PATIENCE = 30.0


def enter() -> None:
    """Move this process, which must have one thread, into a new network. Call this before any import.

    Root needs nothing else. Other users first enter a user namespace in which they keep their own id, so that
    files, devices and signals work as before.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_NETWORK) != 0:
        if libc.unshare(_NEW_USER | _NEW_NETWORK) != 0:
            number = ctypes.get_errno()
            raise OSError(number, _WHY.get(number) or os.strerror(number))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))


def refusal() -> str | None:
    """Why this machine does not allow it; None if it does. A separate process tries it."""
    if sys.platform != "linux":
        return "only Linux has network namespaces"
    try:
        done = subprocess.run(
            [sys.executable, "-c", processes.entry("oarlock.system.private_network")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    return None if done.returncode == 0 else (done.stderr.strip() or "an attempt failed")


def main() -> str | None:
    """Try it. Returns the error, which `sys.exit` prints to stderr."""
    try:
        enter()
    except OSError as problem:
        return problem.strerror or str(problem)
    return None
