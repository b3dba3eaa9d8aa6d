"""In a real terminal: the live display, and Ctrl-C."""

from __future__ import annotations

from pathlib import Path

from oarlock.records import runs
from tests.support.small_programs import ENDLESS, STUBBORN, has_said, write
from tests.support.terminals import OpenTerminal

REPORTS = """
import os, time
import oarlock
me = oarlock.current()
for step in range(1, 6):
    me.report(step=step, total=5, loss=1 / step)
while not os.path.exists("seen"):  # what comes with the end may not be drawn any more
    me.report(step=5, total=5, loss=0.2)
    time.sleep(0.05)
print("loading 1%\\rloading 100%")
print("done")
"""


def test_the_display_is_live_and_the_summary_stays(terminal: OpenTerminal, tmp_path: Path) -> None:
    write(tmp_path / "train.py", REPORTS)
    screen = terminal("run", "-n", "2", "--name", "shown", "train.py")
    screen.until("5/5")
    (tmp_path / "seen").touch()
    assert screen.end() == 0
    assert "loading 100%" in screen.shown
    assert "loading 1%" not in screen.shown
    for part in ("generation 1", "5/5", "━", "loss 0.2"):
        assert part in screen.shown
    last = screen.shown.rpartition("\x1b[?25h")[2]  # where the display gave the cursor back
    assert "shown succeeded in" in last
    assert "oarlock logs shown" in last
    assert "running" not in last


def test_a_failure_is_last_on_the_screen(terminal: OpenTerminal, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "raise ValueError('no luck')")
    screen = terminal("run", "--set", "limits.restarts=0", "train.py")
    assert screen.end() == 1
    last = screen.shown.rpartition("\x1b[?25h")[2].strip().splitlines()
    assert len(last) <= 10
    assert "worker-0: ValueError: no luck" in last[1]
    assert "train.py:1" in last[2]


def test_ctrl_c_stops_and_again_kills(terminal: OpenTerminal, tmp_path: Path) -> None:
    write(tmp_path / "train.py", STUBBORN)
    screen = terminal("run", "--set", "limits.grace=1h", "--name", "wilful", "train.py")
    screen.until("here I am")
    screen.type("\x03")
    screen.until("stopping wilful (Ctrl-C again to kill)")
    assert runs.find("wilful").is_held()
    screen.type("\x03")
    assert screen.end() == 130
    assert "wilful stopped after" in screen.shown
    assert screen.shown.rindex("\x1b[?25h") > screen.shown.rindex("\x1b[?25l")


def test_ctrl_c_only_leaves_a_run_one_is_attached_to(terminal: OpenTerminal, tmp_path: Path) -> None:
    write(tmp_path / "train.py", ENDLESS)
    starting = terminal("run", "-d", "--name", "away", "train.py")
    assert starting.end() == 0
    screen = terminal("attach", "away")
    screen.until("here I am")
    screen.type("\x03")
    assert screen.end() == 0
    assert "detached; away continues" in screen.shown
    assert runs.find("away").is_held()
    reading = terminal("logs", "-f")
    reading.until("here I am")
    reading.type("\x03")
    assert reading.end() == 130
    assert "detached; away continues" in reading.shown
    assert runs.find("away").is_held()
    assert has_said(runs.find("away"), "here I am")
