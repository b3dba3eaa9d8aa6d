"""A task's standard input, and the error it raises if there is nothing to read.

Without input, `input()` raises EOFError and a debugger quits at once. Neither error says how to provide some,
so both become one sentence. A restart would meet them again, so the conductor does not try one.
"""

from __future__ import annotations

import bdb
import os
import sys
from typing import Any

_HOW = (
    "`oarlock run` connects its own input to the only task (-n 1) or to rank 0 (--stdin), "
    "on this machine and without --detach"
)
_ENDED = "the input of `oarlock run`, which this task reads, has ended"
_END_OF_INPUT = "EOF when reading a line"  # from input(): pickle and others raise EOFError, too


class NoInput(Exception):
    """The task has read its input to the end, or has none. `contract.NO_INPUT` is this class's name."""


def connect(stdin: int | None) -> None:
    """Make that descriptor this process's standard input. None stands for an empty input."""
    source = os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin
    os.dup2(source, 0)
    os.close(source)
    if stdin is not None:  # otherwise `sys.stdin` is an empty file already
        before = sys.stdin
        sys.stdin = os.fdopen(0, encoding=before.encoding, errors=before.errors, closefd=False)
        sys.__stdin__ = sys.stdin  # type: ignore[misc]


def install(has_input: bool) -> None:
    """Have `breakpoint()` refuse if a debugger could read nothing. One that is set explicitly works."""
    if not has_input and sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = _refuse


def _refuse(*args: Any, **options: Any) -> Any:
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*args, **options)
    raise NoInput(f"breakpoint() has no input in this task: {_HOW}")


def explained(error: BaseException, has_input: bool) -> NoInput | None:
    """The error as one sentence, if the cause is that the task had nothing more to read."""
    if isinstance(error, NoInput):
        return error
    if isinstance(error, EOFError) and str(error) == _END_OF_INPUT:
        return NoInput(_ENDED if has_input else f"input() has no input in this task: {_HOW}")
    if isinstance(error, bdb.BdbQuit):
        return NoInput(
            "the debugger was quit" if has_input else f"the debugger has no input in this task: {_HOW}"
        )
    return None
