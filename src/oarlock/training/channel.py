"""A task's line to its agent: events go up, requests ("stop at the next step") come down.

The socket is inherited (`OARLOCK_FD`). Without a launcher there is none, and everything here
does nothing. Reporting must never slow a step: at most ten reports a second are sent, the
newest one is kept and sent at the end.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import time
from typing import Any

_INTERVAL = 0.1

_socket: socket.socket | None = None
_opened_by = 0  # a forked data loader must not speak for its parent
_sent = 0.0
_kept: dict[str, Any] | None = None
_requests: set[str] = set()


def report(event: dict[str, Any]) -> None:
    global _sent, _kept
    now = time.monotonic()
    if now - _sent < _INTERVAL:
        _kept = {**(_kept or {}), **event, "t": time.time()}
        return
    _sent, kept, _kept = now, _kept, None
    send({**(kept or {}), **event, "t": time.time(), "kind": "report"}, patience=0)


def flush() -> None:
    global _kept
    if _kept is not None:
        kept, _kept = _kept, None
        send({**kept, "kind": "report"})


def send(event: dict[str, Any], patience: float = 2.0) -> None:
    """Best effort: an agent that does not read, or is gone, must not stop the training."""
    line = open_line()
    if line is None:
        return
    event.setdefault("t", time.time())
    left = memoryview(json.dumps(event, default=_number).encode() + b"\n")
    deadline = time.monotonic() + patience
    try:
        while left:
            try:
                left = left[line.send(left, socket.MSG_DONTWAIT) :]
                deadline = time.monotonic() + 2.0  # half a line would spoil the next one
            except BlockingIOError:
                wait = deadline - time.monotonic()
                if wait <= 0 or not select.select([], [line], [], wait)[1]:
                    return
    except OSError:
        pass


def requested(what: str) -> bool:
    """Whether the agent has asked for `what` ("stop") so far."""
    line = open_line()
    if line is not None:
        try:
            while True:
                text = line.recv(4096, socket.MSG_DONTWAIT)
                if not text:
                    break
                _requests.update(text.decode().split())
        except OSError:
            pass
    return what in _requests


def open_line() -> socket.socket | None:
    """The first process to open it owns it; the runner does so before the program can fork."""
    global _socket, _opened_by
    number = os.environ.get("OARLOCK_FD")
    if number is None:
        return None
    if _socket is None:
        try:
            _socket = socket.socket(fileno=int(number))
        except (OSError, ValueError):
            del os.environ["OARLOCK_FD"]
            return None
        _opened_by = os.getpid()
        atexit.register(flush)
    return _socket if _opened_by == os.getpid() else None


def _number(value: Any) -> Any:
    """NumPy, TensorFlow, torch and JAX scalars all answer to float()."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
