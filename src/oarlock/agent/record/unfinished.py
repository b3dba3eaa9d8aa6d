"""The line that a task has begun but not ended: a progress bar, a prompt.

A log holds whole lines. A small file next to it holds what a terminal would show of the unfinished one. The
file is replaced a few times a second and never kept for long:

    logs/<generation>/worker-0.unfinished        1763 45%|####      | 45/100

The number is the size of the log at that time: once a reader has read past it, the line has ended.
"""

from __future__ import annotations

import re
from pathlib import Path

from oarlock.agent.record.log_segments import UNFINISHED

_MOST = 4096  # bytes to show
_REDRAWN = re.compile(rb"\x08+|\x1b\[[0-9]*[DGK]")  # the cursor moves back, or the line is erased
# A color or another control sequence that has only begun, at the end of the text.
_HALF = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?)\Z")


def last_state(line: bytes) -> bytes:
    """The part of an unfinished line that a terminal shows, without half a character or sequence. Pure."""
    # A bar restarts at each carriage return. Its last state may be half drawn over the one before.
    line = b"\r".join(line.rstrip(b"\r").rsplit(b"\r", 2)[-2:])
    if len(line) > _MOST:
        redrawn = _REDRAWN.search(line, len(line) - _MOST)
        line = line[redrawn.start() :] if redrawn else line[:_MOST]
    line = _HALF.sub(b"", line)
    return line[: len(line) - _half_character(line)]


def write(log: Path, position: int, state: bytes) -> None:
    """Replace what is shown next to a log. Raises OSError."""
    path = _path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(b"%d %s" % (position, state))
    draft.replace(path)  # a reader sees one state or the other


def read(log: Path, position: int) -> bytes:
    """What the task has begun after that position of its log; empty if nothing, or if it has ended."""
    try:
        at, _, state = _path(log).read_bytes().partition(b" ")
    except OSError:
        return b""
    return state if at == b"%d" % position else b""


def _path(log: Path) -> Path:
    return log.with_suffix(UNFINISHED)


def _half_character(line: bytes) -> int:
    """The number of bytes at the end that start a UTF-8 character but do not complete it."""
    for count in range(1, min(3, len(line)) + 1):
        first = line[-count]
        if first & 0xC0 == 0xC0:
            length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            return count if count < length else 0
        if first < 0x80:
            return 0
    return 0
