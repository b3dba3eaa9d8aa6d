"""A terminal with a program in it, for tests: read until something is shown, type, wait for the end."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

DEADLINE = 300.0


class OpenTerminal(Protocol):
    """The fixture `terminal`: the console script with a real terminal around it."""

    def __call__(self, *words: str, columns: int = 100, term: str = "xterm-256color") -> Terminal: ...


class Terminal:
    def __init__(
        self,
        words: Sequence[str],
        cwd: Path,
        rows: int = 24,
        columns: int = 100,
        term: str = "xterm-256color",
    ) -> None:
        self.shown = ""
        self._mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            words,
            cwd=cwd,
            env={**os.environ, "TERM": term},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
        )
        os.close(theirs)

    def until(self, text: str, seconds: float = DEADLINE) -> str:
        """What has been shown, once `text` is in it."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < deadline, f"no {text!r} within {seconds} s: {self.shown!r}"
            assert self._read(0.5) or text in self.shown, f"ended before {text!r}: {self.shown!r}"
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def end(self, seconds: float = DEADLINE) -> int:
        """The exit code."""
        deadline = time.monotonic() + seconds
        while self._read(0.5):
            assert time.monotonic() < deadline, f"still there after {seconds} s: {self.shown!r}"
        return self.process.wait(max(1.0, deadline - time.monotonic()))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._mine)

    def _read(self, seconds: float) -> bool:
        """False at the end: Linux says so with an error once nobody has the other side open."""
        ready, _, _ = select.select([self._mine], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._mine, 1 << 16)
        except OSError:
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)
