"""What a terminal would finally show of a line: progress bars draw over themselves. Pure.

Colours stay (or go, where nobody can see them); every other control sequence goes, so that a
program's output can move no cursor, set no title and clear no screen.
"""

from __future__ import annotations

import re

# Colours and other CSI sequences, OSC (titles, links) up to its end, two-character escapes, single controls.
_TOKEN = re.compile(
    r"\x1b\[(?P<arguments>[0-9;:?<=>]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"
    r"|\x1b[ -/]*[0-~]?"
    r"|(?P<control>[\x00-\x08\x0a-\x1f\x7f-\x9f])"
    r"|(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
)
_QUIET = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_RESET = "\x1b[0m"


def resolve(line: str, colours: bool = True) -> str:
    """The line as it stands once everything in it was written."""
    if not _QUIET.search(line):
        return line
    row = _Row()
    for token in _TOKEN.finditer(line):
        if token["text"]:
            row.write(token["text"])
        elif token["control"]:
            row.control(token["control"])
        elif token["final"]:
            row.sequence(token["arguments"], token["final"])
    return row.text(colours)


class _Row:
    """One row of cells, each a character and the colours it was written in."""

    def __init__(self) -> None:
        self.cells: list[tuple[str, str]] = []
        self.column = 0
        self.style = ""

    def write(self, text: str) -> None:
        missing = self.column - len(self.cells)
        self.cells += [(" ", "")] * max(0, missing)
        self.cells[self.column : self.column + len(text)] = [(c, self.style) for c in text]
        self.column += len(text)

    def control(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)

    def sequence(self, arguments: str, final: str) -> None:
        if final == "m":
            self.style = "" if arguments in ("", "0", "00") else f"{self.style}\x1b[{arguments}m"
        elif final == "K":
            self._erase(arguments)
        elif final in "CDG" and (arguments or "1").isdecimal():
            # Clamped: a line must not be able to ask for a billion cells.
            count = min(int((arguments or "1")[:5]), 4096)
            target = {"C": self.column + count, "D": self.column - count, "G": count - 1}[final]
            self.column = max(0, min(target, len(self.cells) + 4096))

    def _erase(self, which: str) -> None:
        if which in ("", "0"):
            del self.cells[self.column :]
        elif which == "2":
            self.cells = []
        elif which == "1":
            count = min(self.column + 1, len(self.cells))
            self.cells[:count] = [(" ", "")] * count

    def text(self, colours: bool) -> str:
        if not colours:
            return "".join(character for character, _ in self.cells)
        parts, current = [], ""
        for character, style in self.cells:
            if style != current:
                parts.append((_RESET if current else "") + style)
                current = style
            parts.append(character)
        return "".join(parts) + (_RESET if current else "")
