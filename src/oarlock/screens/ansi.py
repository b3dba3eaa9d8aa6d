"""Make text safe for a terminal. Pure.

`resolve` is for the output of programs: it applies what progress bars draw over, keeps or removes colors, and
removes every other control sequence. `visible` is for all other text. Neither passes on anything that moves
the cursor, sets a title, writes the clipboard or reverses text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from oarlock.system.lines import CONTINUED

# C0 without tab, DEL and C1; what reverses or hides text (bidi controls); line separators.
_CONTROLS = "\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{_CONTROLS}]")
_CONTROL_IN_LINES = re.compile(_CONTROL.pattern.replace("\x0a-", "\x0b-"))
# Half surrogates too: they stand for bytes that are not UTF-8, and may be printed as such bytes.
_UNSAFE = re.compile(f"[{_CONTROLS}\ud800-\udfff]")
_UNSAFE_IN_LINES = re.compile(_UNSAFE.pattern.replace("\x0a-", "\x0b-"))
# Colors and other CSI sequences, OSC (titles, links) up to its end, two-character escapes, single controls.
_TOKEN = re.compile(
    r"\x1b\[(?P<arguments>[0-9;:?<=>]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"
    r"|\x1b[ -/]*[0-~]?"
    rf"|(?P<control>[{_CONTROLS}])"
    rf"|(?P<text>[^{_CONTROLS}]+)"
)
_WIDEST = 4096  # columns that a line can reach by moving the cursor alone
_LONGEST = 64  # characters that describe a style: all attributes and two colors
_RESET = "\x1b[0m"
_ATTRIBUTES = (1, 2, 3, 4, 5, 7, 9)  # not 8, which hides text
_ENDS = {22: (1, 2), 23: (3,), 24: (4,), 25: (5,), 27: (7,), 29: (9,)}
_SHOWN_AS_IS = bytes(range(0x20, 0x7F)) + b"\t\n"
_TRACEBACK = "Traceback (most recent call last):"
_REDRAWN = re.compile(r"[\r\b]|\x1b\[[0-9]*[KG]")
_OVERWRITTEN = "\r" + CONTINUED.decode()  # the agent has cut an endless line after a state of a bar
_COLOR_NUMBERS = {5: 1, 2: 3}  # 38;5;n and 38;2;r;g;b


def visible(text: str, *, lines: bool = False) -> str:
    """Return the text with control characters spelled out as in Python; `lines` keeps line ends."""
    return (_UNSAFE_IN_LINES if lines else _UNSAFE).sub(_spelled, text)


def json_safe(text: str) -> str:
    r"""Return JSON text with its control characters as \u escapes: they can only be inside strings."""
    return _UNSAFE_IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def resolve(line: str, colours: bool = True) -> str:
    """Return the line as a terminal shows it after all of it was written."""
    if not _CONTROL.search(line):
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


def rows(line: str, colours: bool = True) -> list[str]:
    """Return a line of a program's output as the rows that a reader wants to see.

    A traceback after an unfinished bar begins a row. Earlier states of a bar are none.
    """
    if line.endswith(_OVERWRITTEN):
        return []
    before, header, after = line.partition(_TRACEBACK)
    if header and not after and _REDRAWN.search(before):
        return [resolve(before, colours), header]
    return [resolve(line, colours)]


def as_it_is(data: bytes) -> str | None:
    """Return lines of a program's output if no character of them has to be changed; None for all others."""
    if data.isascii():
        return data.decode("ascii") if not data.translate(None, _SHOWN_AS_IS) else None
    text = data.decode(errors="replace")
    return None if _CONTROL_IN_LINES.search(text) else text


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class _Style(NamedTuple):
    """The current colors and attributes; small, whatever a line contains."""

    foreground: str = ""
    background: str = ""
    attributes: tuple[int, ...] = ()

    @lru_cache(maxsize=512)  # noqa: B019 - a program uses few of them, over and over
    def after(self, arguments: str) -> _Style:
        style, codes = self, iter(_codes(arguments))
        for code in codes:
            if code == 0:
                style = _PLAIN
            elif code in _ATTRIBUTES:
                style = style._replace(attributes=tuple(sorted({*style.attributes, code})))
            elif code in _ENDS:
                left = tuple(one for one in style.attributes if one not in _ENDS[code])
                style = style._replace(attributes=left)
            elif code in (38, 48):
                kind = next(codes, 0)
                numbers = [*islice(codes, _COLOR_NUMBERS.get(kind, 0))]
                if numbers and len(numbers) == _COLOR_NUMBERS[kind]:
                    style = style._colored(code, ";".join(map(str, (code, kind, *numbers))))
            elif 30 <= code <= 49:
                style = style._colored(code, "" if code in (39, 49) else str(code))
            elif 90 <= code <= 107:
                style = style._colored(code - 60, str(code))
        return style

    def _colored(self, code: int, color: str) -> _Style:
        return self._replace(foreground=color) if code < 40 else self._replace(background=color)

    def __str__(self) -> str:
        codes = [*map(str, self.attributes), self.foreground, self.background]
        return f"\x1b[{';'.join(filter(None, codes))}m" if self != _PLAIN else ""


_PLAIN = _Style()


def _codes(arguments: str) -> list[int]:
    """`1;38:2::9:9:9` as 1, 38, 2, 9, 9, 9; empty if a part is not a number of at most three digits."""
    words = (word for group in arguments.split(";") for word in _parts(group))
    codes = [word or "0" for word in words]
    return [int(code) for code in codes] if all(code.isdecimal() and len(code) < 4 for code in codes) else []


def _parts(group: str) -> list[str]:
    return [part for part in group.split(":") if part] if ":" in group else [group]


class _Row:
    """One row of cells, each a character and the style it was written in."""

    def __init__(self) -> None:
        self.cells: list[tuple[str, _Style]] = []
        self.column = 0
        self.style = _PLAIN

    def write(self, text: str) -> None:
        missing = self.column - len(self.cells)
        self.cells += [(" ", _PLAIN)] * max(0, missing)
        self.cells[self.column : self.column + len(text)] = [(c, self.style) for c in text]
        self.column += len(text)

    def control(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)

    def sequence(self, arguments: str, final: str) -> None:
        if final == "m" and len(arguments) <= _LONGEST:
            self.style = self.style.after(arguments)
        elif final == "K":
            self._erase(arguments)
        elif final in "CDG" and (arguments or "1").isdecimal():
            count = min(int((arguments or "1")[:5]), _WIDEST)
            target = {"C": self.column + count, "D": self.column - count, "G": count - 1}[final]
            self.column = max(0, min(target, max(len(self.cells), _WIDEST)))

    def _erase(self, which: str) -> None:
        if which in ("", "0"):
            del self.cells[self.column :]
        elif which == "2":
            self.cells = []
        elif which == "1":
            count = min(self.column + 1, len(self.cells))
            self.cells[:count] = [(" ", _PLAIN)] * count

    def text(self, colours: bool) -> str:
        if not colours:
            return "".join(character for character, _ in self.cells)
        parts, current = [], _PLAIN
        for character, style in self.cells:
            if style is not current and style != current:
                parts.append((_RESET if current != _PLAIN else "") + str(style))
                current = style
            parts.append(character)
        return "".join(parts) + (_RESET if current != _PLAIN else "")
