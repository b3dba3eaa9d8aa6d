"""Python stacks of a task that does not move, also when it is blocked in C.

`faulthandler` on a real-time signal writes them from inside the signal handler itself, so no
Python code has to run (an ordinary handler shows nothing while a thread sits in a C call). A
task that was stopped from outside (SIGSTOP, a debugger) cannot answer, and is told apart.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path

SIGNAL = getattr(signal, "SIGRTMAX", 64) - 6  # one that no framework and hardly a program uses


def register() -> None:
    """In the task: be ready to be asked."""
    if hasattr(faulthandler, "register"):
        faulthandler.register(SIGNAL, all_threads=True, chain=False)


def ask(pid: int) -> str:
    """Ask for them, and say what can be expected."""
    status = _status(pid)
    if status.get("State", "").startswith(("T", "t")):
        return "is stopped (SIGSTOP or a debugger): it cannot show its stacks until it is continued"
    if not _handles(status):
        return "has no Python to show stacks of"  # the signal would kill it
    os.kill(pid, SIGNAL)
    return "shows its stacks:"


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _handles(status: dict[str, str]) -> bool:
    return bool(int(status.get("SigCgt", "0"), 16) >> (SIGNAL - 1) & 1)
