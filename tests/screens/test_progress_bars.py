"""Real progress bars and prompts while they have no end: on every screen, and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oarlock.records import runs
from tests.support.small_programs import write
from tests.support.terminals import OpenTerminal

# Each bar stops halfway until the test has seen it.
BARS = """
import os, sys, time
os.environ["KERAS_BACKEND"] = "numpy"  # no framework to import for a bar

def wait(name):
    while not os.path.exists(name):
        time.sleep(0.02)

print("begin")
from tqdm import tqdm
for step in tqdm(range(10), mininterval=0, bar_format="tqdm {n}/10 {bar}"):
    if step == 5:
        wait("tqdm")

from rich.console import Console
from rich.progress import Progress
with Progress(console=Console(force_terminal=True, width=60), auto_refresh=False) as progress:
    task = progress.add_task("rich", total=10)
    for step in range(10):
        if step == 5:
            progress.refresh()
            wait("rich")
        progress.advance(task)
        progress.refresh()

import keras
bar = keras.utils.Progbar(10, width=10, interval=0, stateful_metrics=["loss"])
for step in range(1, 11):
    bar.update(step, [("loss", step)])
    if step == 5:
        wait("keras")

print("\\rlast 10%\\rlast 20%", end="", flush=True)
wait("last")
raise ValueError("no luck")
"""
STATES = {"tqdm": "tqdm 5/10", "rich": "50%", "keras": "loss: 5.0000", "last": "last 20%"}


def test_every_bar_is_shown_as_it_grows(terminal: OpenTerminal, oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", BARS)
    screen = terminal("run", "--name", "bars", "--set", "limits.restarts=0", "train.py")
    screen.until("begin")
    reading = terminal("logs", "-f", "bars")
    for name, state in STATES.items():
        screen.until(state)
        reading.until(state)
        status = oarlock("status", "bars").stdout
        assert state in status.partition("unfinished lines")[2], status
        (tmp_path / name).touch()
    assert screen.end() == 1
    reading.end()
    lines = oarlock("logs", "bars").stdout.splitlines()
    assert lines[:3] == ["worker-0 | begin", "worker-0 | tqdm 10/10 ██████████", lines[2]]
    assert [line for line in lines if "rich" in line] == [lines[2]]
    assert "100%" in lines[2]
    at = lines.index("worker-0 | last 20%")
    assert "10/10 ━━━━━━━━━━" in lines[at - 1]
    assert lines[at + 1] == "worker-0 | Traceback (most recent call last):"
    raw = (runs.find("bars").path / "logs" / "1" / "worker-0.log").read_bytes()
    assert b"\rlast 10%\rlast 20%Traceback (most" in raw, "the log has what the program wrote"


PROMPT = """
import os, time
print("begin")
print("name? ", end="", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
print("Bob")
"""


def test_a_prompt_is_shown_before_its_line_ends_and_the_line_once(
    terminal: OpenTerminal, oarlock: Any, tmp_path: Path
) -> None:
    """On a terminal that cannot draw, in place; in a pipe, whole lines alone."""
    write(tmp_path / "train.py", PROMPT)
    screen = terminal("run", "--name", "asks", "train.py", term="dumb")
    screen.until("worker-0 | name? ")
    (tmp_path / "go").touch()
    assert screen.end() == 0
    rows = [row.rstrip("\r").rpartition("\r")[2] for row in screen.shown.split("\n")]
    assert [row for row in rows if "name?" in row] == ["worker-0 | name? Bob"]
    assert oarlock("logs", "-f", "asks").stdout == "worker-0 | begin\nworker-0 | name? Bob\n"
