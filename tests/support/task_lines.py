"""This process as a task: without a launcher, or with the agent's end of its line in the test's hands."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from oarlock.training.task import channel


@pytest.fixture
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which no launcher has said anything."""
    for name in [name for name in os.environ if name.startswith("OARLOCK_") or name.endswith("_DIR")]:
        monkeypatch.delenv(name)


@pytest.fixture
def agent_line(no_launcher: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The agent's end of this process's line, as after a launch."""
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    monkeypatch.setenv("OARLOCK_FD", str(theirs.detach()))
    unused: dict[str, Any] = {"_socket": None, "_sent": 0.0, "_kept": None, "_requests": set()}
    unused["_reports_itself"] = False
    for name, value in unused.items():
        monkeypatch.setattr(channel, name, value)
    with ours:
        yield ours
        with suppress(OSError):  # a test may have done so
            ours.shutdown(socket.SHUT_RDWR)
    for thread in threading.enumerate():
        if thread.name == "oarlock-line":  # it says that the agent is gone: to the next test, if it came late
            thread.join(300)
    if channel._socket is not None:
        channel._socket.close()


def read_to_end(line: socket.socket, seconds: float = 500.0) -> list[bytes]:
    """All lines that a task writes until it ends."""
    line.settimeout(seconds)
    text = b""
    with line:
        while data := line.recv(1 << 16):
            text += data
    return text.splitlines()
