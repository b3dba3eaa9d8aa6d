"""A replica as the supervisor sees it: a child process, its messages, and when it must be gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from oarlock.models.model_versions import Version
from oarlock.system import processes
from oarlock.system.lines import Lines

_CHUNK = 1 << 16


class ReplicaProcess:
    """Loading, then ready, then perhaps draining; gone once `reaped` has its exit code."""

    def __init__(self, number: int, key: object, versions: tuple[Version, ...], block: int) -> None:
        self.number = number
        self.key = key  # what it serves: see `VersionSet.key`
        self.versions = versions
        self.block = block
        self.pid = 0
        self.line: socket.socket | None = None
        self.ready: list[dict[str, Any]] | None = None  # its versions, once it answers
        self.failed: str | None = None  # why it could not load
        self.notes: list[str] = []  # notes for the user about its model
        self.code: int | None = None
        self.drains_until: float | None = None
        self.began = time.monotonic()
        self._lines = Lines()

    @property
    def is_ready(self) -> bool:
        """Whether it answers requests and will continue to."""
        return self.ready is not None and self.drains_until is None and self.code is None

    @property
    def is_loading(self) -> bool:
        """Whether it has yet to answer."""
        return self.ready is None and self.drains_until is None and self.code is None

    def start(self, body: Callable[[socket.socket], int], closes: Callable[[], None]) -> None:
        """Fork. The child runs `body` with its line; `closes` closes there what the child must not hold."""
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                ours.close()
                closes()
                code = body(theirs)
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        theirs.close()
        ours.setblocking(False)
        self.line = ours

    def read(self) -> bool:
        """Read its messages; False once there will be no more."""
        assert self.line is not None
        try:
            data = self.line.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        for text in self._lines.feed(data):
            message = json.loads(text)
            self.ready = message.get("ready", self.ready)
            self.failed = message.get("failed", self.failed)
            self.notes += [message["note"]] if "note" in message else []
        if not data:
            self.close()
        return bool(data)

    def close(self) -> None:
        """Close our end of its line."""
        if self.line is not None:
            self.line.close()
            self.line = None

    def drain(self, sig: int, grace: float) -> None:
        """Let it finish its requests and exit."""
        if self.is_loading:
            sig = signal.SIGKILL  # nothing depends on it
        until = time.monotonic() + grace
        self.drains_until = until if self.drains_until is None else min(until, self.drains_until)
        processes.send(self.pid, sig)

    def kill(self) -> None:
        """Kill it now."""
        processes.send(self.pid, signal.SIGKILL)

    def reap(self) -> bool:
        """Whether it is gone; then `code` says how."""
        if self.code is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid == 0:
                    return False
                self.code = processes.exit_code(status)
            while self.line is not None and self.read():
                pass  # its last messages
            self.close()
        return self.code is not None

    def why(self) -> str:
        """Why it is gone, as text."""
        if self.failed is not None:
            return self.failed
        if self.code is not None and self.code > 128:
            name = signal.Signals(self.code - 128).name if self.code - 128 in set(signal.Signals) else ""
            return f"it was killed by signal {self.code - 128}" + (f" ({name})" if name else "")
        return f"it ended with exit code {self.code}"
