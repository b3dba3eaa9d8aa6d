"""Another user of the machine, who may try what he likes."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@contextmanager
def as_nobody(do: Callable[[], bool]) -> Iterator[Callable[[], int]]:
    """In a process of another user meanwhile, which says at its end how it went."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os._exit(0 if do() else 1)
        finally:
            os._exit(2)
    try:
        yield lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def is_denied(address: str | tuple[str, int]) -> bool:
    """Whether nobody answers there: a unix socket's name, as the kernel shows it, or host and port."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as line:
        line.settimeout(10)
        try:
            line.connect("\0" + address[1:] if isinstance(address, str) and address[0] == "@" else address)
        except OSError:
            return True
    return False
