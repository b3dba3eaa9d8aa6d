"""An unfinished line as one row of a terminal."""

from __future__ import annotations

import os
import pty
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oarlock.screens.last_line import LastLine, first_row


@contextmanager
def _terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A real terminal of 20 columns as standard output; what it shows is read from the descriptor."""
    mine, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setenv("COLUMNS", "20")
        yield mine
        monkeypatch.undo()
    os.close(mine)


def _shows(screen: int, expected: str) -> None:
    """Read as many bytes as expected and compare them."""
    shown = b""
    while len(shown) < len(expected.encode()) and select.select([screen], [], [], 30.0)[0]:
        shown += os.read(screen, 1 << 16)
    assert shown.decode() == expected


def test_it_is_rewritten_in_place_and_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with _terminal(monkeypatch) as screen:
        last = LastLine()
        last.show({"w-0": b" 10%"})
        _shows(screen, "\rw-0 |  10%")
        last.show({"w-0": b" 10%"})  # nothing new
        last.show({"w-0": b"20%"})
        _shows(screen, "\rw-0 | 20% ")
        last.clear()
        _shows(screen, "\r         \r")
        last.clear()
        last.show({"w-0": b"30%"})
        _shows(screen, "\rw-0 | 30%")


def test_of_several_the_one_that_changed_last_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with _terminal(monkeypatch) as screen:
        last = LastLine()
        last.show({"w-0": b"a"})
        last.show({"w-0": b"a", "w-1": b"b"})
        _shows(screen, "\rw-0 | a\rw-1 | b")
        last.show({"w-0": b"c", "w-1": b"b"})
        _shows(screen, "\rw-0 | c")
        last.show({"w-1": b"b"})
        _shows(screen, "\rw-1 | b")
        last.show({})
        _shows(screen, "\r       \r")


def test_it_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    with _terminal(monkeypatch) as screen:
        last = LastLine()
        last.show({"w-0": ("\u4f60" * 20).encode()})  # two columns each
        _shows(screen, "\rw-0 | " + "\u4f60" * 6)
        last.show({"w-0": b"x" * 50})
        _shows(screen, "\rw-0 | " + "x" * 13)


def test_it_is_harmless() -> None:
    assert first_row("w-0", b" 1%\r\x1b[31m 2%\x1b[2J\x1b]0;title\x07\x00\xff") == "w-0 |  2%\ufffd"


def test_a_pipe_gets_none_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    last = LastLine()
    last.show({"w-0": b"a"})
    last.clear()
    assert capsys.readouterr().out == ""
