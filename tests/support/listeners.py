"""What the processes of a run listen on, as the kernel tells it."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oarlock.system import processes

_LISTENING = "0A"
_NEW_HOST_NAME = 0x04000000  # CLONE_NEWUTS


def of_tree(root: int) -> set[str]:
    """The addresses, `host:port`, on which a process and everybody below it listen."""
    return _listening(inodes(root), [root, *processes.descendants(root)])


def everybody_sees(inodes: set[str]) -> set[str]:
    """What `ss -ltn` shows of these sockets to any user."""
    return _listening(inodes, ["self"])


def unix_of_tree(root: int) -> set[str]:
    """The names of its unix sockets."""
    found = inodes(root)
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[7] for row in rows if len(row) > 7 and row[6] in found}


def inodes(root: int) -> set[str]:
    """Of all sockets that a process and everybody below it hold."""
    everybody = [root, *processes.descendants(root)]
    held = [target for pid in everybody for target in _descriptors(pid)]
    return {target[len("socket:[") : -1] for target in held if target.startswith("socket:[")}


def is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::1:", "::ffff:127."))


def outside() -> str | None:
    """An address of this machine that is not loopback, if it has one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        host: str = probe.getsockname()[0]
        return None if host.startswith("127.") else host


@contextmanager
def host_named(name: str) -> Iterator[None]:
    """This process and those it starts are on a machine of that name. For root only."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/self/ns/uts", os.O_RDONLY)
    try:
        assert libc.unshare(_NEW_HOST_NAME) == 0, os.strerror(ctypes.get_errno())
        socket.sethostname(name)
        yield
    finally:
        assert libc.setns(before, _NEW_HOST_NAME) == 0, os.strerror(ctypes.get_errno())
        os.close(before)


def _listening(inodes: set[str], pids: Iterable[int | str]) -> set[str]:
    rows = [row for pid in pids for row in _rows(pid)]
    return {_readable(row[1]) for row in rows if row[3] == _LISTENING and row[9] in inodes}


def _descriptors(pid: int) -> Iterable[str]:
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            yield str(fd.readlink())
    except OSError:
        return  # it has ended, or closed this one


def _rows(pid: int | str) -> Iterable[list[str]]:
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()
        except OSError:
            return
        yield from (line.split() for line in lines[1:])


def _readable(address: str) -> str:
    """The kernel writes words of four bytes, each in the order of this machine."""
    host, _, port = address.partition(":")
    words = bytes.fromhex(host)
    packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, packed)}:{int(port, 16)}"
