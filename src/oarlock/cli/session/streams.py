"""The streams of a command that a verb runs: this terminal, this process's streams, or memory for --json."""

from __future__ import annotations

import io
import sys

from oarlock.engines.shared.command_streams import Streams, captured
from oarlock.screens.output import print_json


def streams(*, as_json: bool, reads_terminal: bool) -> Streams:
    """Return the streams for a command.

    `reads_terminal`: without --json the command may read what is typed even if its output goes to a pipe.
    """
    sys.stdout.flush()
    stdin = own_stdin() if reads_terminal or not _is_typed() else None
    if as_json:
        return captured(stdin)
    if is_on_terminal():
        return Streams(sys.stdin.fileno(), sys.stdout.buffer, sys.stderr.buffer, is_terminal=True)
    return Streams(stdin, sys.stdout.buffer, sys.stderr.buffer)


def is_on_terminal() -> bool:
    """Return whether the user types into this process and sees its output."""
    return _is_typed() and sys.stdout.isatty()


def print_captured(code: int, used: Streams) -> None:
    """Print the result of a command whose output was captured as JSON; nothing for any other."""
    if isinstance(used.stdout, io.BytesIO) and isinstance(used.stderr, io.BytesIO):
        texts = [stream.getvalue().decode(errors="replace") for stream in (used.stdout, used.stderr)]
        print_json({"code": code, "stdout": texts[0], "stderr": texts[1]})


def own_stdin() -> int | None:
    """Return the descriptor of this process's input; None if it was closed or is not a file."""
    try:
        return None if sys.stdin is None else sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):
        return None


def _is_typed() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()  # None if it was closed
