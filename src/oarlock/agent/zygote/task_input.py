"""A task's standard input: what it reads, and what it says where there is nothing to read.

Without input, `input()` raises EOFError and a debugger quits at once. Neither error says how to get some, so
both become one sentence. A restart would meet them again: the conductor does not try one.
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
_END_OF_INPUT = "EOF when reading a line"  # what input() says: pickle and others raise EOFError, too


class NoInput(Exception):
    """The task has read to the end of its input, or has none. `contract.NO_INPUT` is its name."""


def connect(stdin: int | None) -> None:
    """Make that descriptor this process's standard input; None stands for an empty one."""
    source = os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin
    os.dup2(source, 0)
    os.close(source)
    if stdin is not None:  # else `sys.stdin` knows an empty file already
        before = sys.stdin
        sys.stdin = os.fdopen(0, encoding=before.encoding, errors=before.errors, closefd=False)
        sys.__stdin__ = sys.stdin  # type: ignore[misc]


def install(has_input: bool) -> None:
    """Have `breakpoint()` refuse where a debugger could read nothing; one that is set explicitly works."""
    if not has_input and sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = _refuse


def _refuse(*args: Any, **options: Any) -> Any:
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*args, **options)
    raise NoInput(f"breakpoint() has no input in this task: {_HOW}")


def explained(error: BaseException, has_input: bool) -> NoInput | None:
    """The error in a sentence, if it is that the task could read nothing more."""
    if isinstance(error, NoInput):
        return error
    if isinstance(error, EOFError) and str(error) == _END_OF_INPUT:
        return NoInput(_ENDED if has_input else f"input() has no input in this task: {_HOW}")
    if isinstance(error, bdb.BdbQuit):
        return NoInput(
            "the debugger was quit" if has_input else f"the debugger has no input in this task: {_HOW}"
        )
    return None
