"""Python stacks of a task that does not move, also when it is blocked in C.

`faulthandler` on a real-time signal writes them from inside the signal handler itself, so no
Python code has to run (an ordinary handler shows nothing while a thread sits in a C call). A
task that was stopped from outside (SIGSTOP, a debugger) cannot answer, and is told apart.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from dataclasses import dataclass
from pathlib import Path

SIGNAL = getattr(signal, "SIGRTMAX", 64) - 6  # one that no framework and hardly a program uses

SHOWS = "shows its stacks:"
SHOWN = "has shown its stacks"
STOPPED = "is stopped (SIGSTOP or a debugger): it cannot show its stacks until it is continued"
NO_PYTHON = "has no Python to show stacks of"


def register() -> None:
    """In the task: be ready to be asked."""
    if hasattr(faulthandler, "register"):
        faulthandler.register(SIGNAL, all_threads=True, chain=False)


@dataclass(frozen=True)
class Question:
    """What a task was asked, and whether it has written all of its answer."""

    pid: int
    said: str  # what can be expected
    deaf: frozenset[str] = frozenset()  # threads that did not take the signal anyway

    @property
    def is_open(self) -> bool:
        """faulthandler writes no end. But a handler runs with its own signal blocked: while the signal waits,
        or a thread blocks it that did not before, the answer is still to come or being written."""
        return self.said == SHOWS and (
            _is_in("ShdPnd", _status(self.pid)) or not _deaf(self.pid) <= self.deaf
        )


def ask(pid: int) -> Question:
    status = _status(pid)
    if status.get("State", "").startswith(("T", "t")):
        return Question(pid, STOPPED)
    if not _is_in("SigCgt", status):
        return Question(pid, NO_PYTHON)  # the signal would kill it
    question = Question(pid, SHOWS, _deaf(pid))
    try:
        os.kill(pid, SIGNAL)
    except ProcessLookupError:
        return Question(pid, NO_PYTHON)  # it has just ended
    return question


def _deaf(pid: int) -> frozenset[str]:
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
