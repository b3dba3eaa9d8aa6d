"""Python stacks of a task that hangs, even if it is blocked in C.

`faulthandler` on a real-time signal writes them from the signal handler itself, so no Python code has to run
(an ordinary handler shows nothing while a thread is in a C call). A task that was stopped from outside
(SIGSTOP, a debugger) cannot answer; this is detected.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from dataclasses import dataclass
from pathlib import Path

SIGNAL = getattr(signal, "SIGRTMAX", 64) - 6  # one that no framework and hardly any program uses

SHOWS = "shows its stacks:"
SHOWN = "has shown its stacks"
STOPPED = "is stopped (SIGSTOP or a debugger): it cannot show its stacks until it is continued"
NO_PYTHON = "has no Python to show stacks of"


def register() -> None:
    """Call this in the task: it then shows all stacks on SIGNAL."""
    if hasattr(faulthandler, "register"):
        faulthandler.register(SIGNAL, all_threads=True, chain=False)


@dataclass(frozen=True)
class StackRequest:
    """A request for stacks, which knows whether the task has finished its dump."""

    pid: int
    said: str  # what to expect: SHOWS, STOPPED or NO_PYTHON
    blocked: frozenset[str] = frozenset()  # threads that had blocked the signal before

    @property
    def is_open(self) -> bool:
        """Whether the dump is not finished. faulthandler marks no end, but a handler runs with its own signal
        blocked. So while the signal is pending, or a thread blocks it that did not before, it is not done."""
        return self.said == SHOWS and (
            _is_in("ShdPnd", _status(self.pid)) or not _blocking(self.pid) <= self.blocked
        )


def ask(pid: int) -> StackRequest:
    """Ask a task to write its stacks to its output."""
    status = _status(pid)
    if status.get("State", "").startswith(("T", "t")):
        return StackRequest(pid, STOPPED)
    if not _is_in("SigCgt", status):
        return StackRequest(pid, NO_PYTHON)  # the signal would kill it
    question = StackRequest(pid, SHOWS, _blocking(pid))
    try:
        os.kill(pid, SIGNAL)
    except ProcessLookupError:
        return StackRequest(pid, NO_PYTHON)  # it has just ended
    return question


def _blocking(pid: int) -> frozenset[str]:
    try:
        threads = [thread.name for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        threads = []
    return frozenset(name for name in threads if _is_in("SigBlk", _status(pid, name)))


def _status(pid: int, thread: str = "") -> dict[str, str]:
    folder = f"/proc/{pid}/task/{thread}" if thread else f"/proc/{pid}"
    try:
        lines = Path(folder, "status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_in(signals: str, status: dict[str, str]) -> bool:
    return bool(int(status.get(signals, "0"), 16) >> (SIGNAL - 1) & 1)
