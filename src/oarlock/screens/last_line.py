"""The last line of a terminal, rewritten in place: a task's progress bar or prompt, while it has no end."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping

from oarlock.screens.ansi import resolve, visible
from oarlock.screens.output import redraw


class LastLine:
    """Shows what a task has begun to write, if stdout is a terminal."""

    def __init__(self) -> None:
        self._is_used = sys.stdout.isatty()
        self._seen: Mapping[str, bytes] = {}
        self._width = 0  # of what is on the line now

    def show(self, unfinished: Mapping[str, bytes]) -> None:
        """Show the line that has changed last."""
        if not self._is_used:
            return
        changed = [task for task, text in unfinished.items() if self._seen.get(task) != text]
        is_gone = bool(self._seen.keys() - unfinished.keys())
        self._seen = dict(unfinished)
        if changed or is_gone:
            self._draw(first_row(task, unfinished[task]) for task in [*changed, *unfinished][:1])

    def clear(self) -> None:
        """Make room for whole lines; the next `show` draws the line again."""
        self._seen = {}
        self._draw([])

    def _draw(self, rows: Iterable[str]) -> None:
        room = shutil.get_terminal_size().columns - 1  # a full line would wrap
        row, width = _cut("".join(rows), room)
        if width or self._width:
            blank = " " * (self._width - width)
            redraw(f"{row}{blank}", 0, err=False)
            if not width:
                redraw("", 0, err=False)  # whole lines begin at the left
        self._width = width


def first_row(task: str, text: bytes) -> str:
    """Return an unfinished line as text, without colors."""
    return f"{visible(task)} | {resolve(text.decode(errors='replace'), colours=False)}"


def _cut(text: str, room: int) -> tuple[str, int]:
    """Return as much of the text as fits, and its width."""
    width = 0
    for at, character in enumerate(text):
        cells = _cells(character)
        if width + cells > room:
            return text[:at], width
        width += cells
    return text, width


def _cells(character: str) -> int:
    if character == "\t":
        return 8
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
