"""A task that does not move any more is found, shown in the log, and started again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oarlock.agent.net import control
from tests.support.gangs import Gang
from tests.support.soaking import cases

BEGIN = """
import ctypes, os, signal, threading, time, oarlock
me = oarlock.current()
def stuck():
    %s
if me.generation == 1:  # who has not reported is never stalled: the next one may take its time to end
    while me.rank == 1 and not os.path.exists("is-there"):
        time.sleep(0.05)
    if me.rank == 1:
        me.report(1)  # nothing else moves the deadline: on a slow machine, too, it passes while this is stuck
        stuck()
    open("is-there", "w").close()
    time.sleep(10**6)
"""


@pytest.mark.parametrize(
    ("way", "code"),
    cases(
        [
            ("in Python", "while True: pass"),
            ("in C, holding the interpreter", "ctypes.PyDLL(None).pause()"),
        ],
        soak=[
            ("in a lock", "lock = threading.Lock(); lock.acquire(); lock.acquire()"),
            ("in C, having let it go", "ctypes.CDLL(None).pause()"),
        ],
    ),
)
def test_the_stacks_of_a_stuck_task_are_in_its_log(home: Path, tmp_path: Path, way: str, code: str) -> None:
    gang = Gang(tmp_path / "job", BEGIN % code, limits={"stall": "1s"})
    state = gang.end()
    assert (state.state, state.generation) == ("succeeded", 2), gang.told()
    assert "limits.stall (1 s)" in gang.of("restart")[0]["reason"]
    shown = [line for line in gang.lines if line.startswith("worker-1|")]
    assert "worker-1| oarlock: worker-1 shows its stacks:" in shown
    assert any("program.py" in line and "in stuck" in line for line in shown), shown


def test_a_stopped_task_is_told_apart(home: Path, tmp_path: Path) -> None:
    gang = Gang(tmp_path / "job", BEGIN % "os.kill(os.getpid(), signal.SIGSTOP)", limits={"stall": "1s"})
    state = gang.end()
    assert (state.state, state.generation) == ("succeeded", 2), gang.told()
    assert any("worker-1 is stopped (SIGSTOP" in line for line in gang.lines), gang.told()
    assert any(line.startswith("worker-0|") and "in <module>" in line for line in gang.lines), gang.told()


def test_a_run_in_which_nothing_happens_is_said_to_be_stuck_until_something_does(
    home: Path, tmp_path: Path
) -> None:
    program = """
import time
open("door").read()  # until somebody writes
began = time.monotonic()
while time.monotonic() < began + 4:  # in silence, for twice as long as the limit
    pass
"""
    folder = tmp_path / "job"
    folder.mkdir()
    os.mkfifo(folder / "door")
    gang = Gang(folder, program, roles={"worker": 1}, limits={"stall": "2s"})
    gang.until(lambda gang: gang.state.problem, "problem")
    assert gang.state.problem == (
        "nothing happens: for 2 s no task has reported, printed or computed; "
        f"see where each task is: oarlock stacks {gang.run.name}"
    )
    (folder / "door").write_text("")
    assert gang.end().state == "succeeded", gang.told()
    assert [set(event) & {"text"} for event in gang.of("problem")] == [{"text"}, set()], (
        "said, and taken back"
    )
    assert gang.state.generation == 1


def test_stacks_on_demand_do_not_disturb_the_run(home: Path, tmp_path: Path) -> None:
    program = """
import time, oarlock
def careful_step(step):
    oarlock.current().report(step)
    time.sleep(0.02)
for step in range(1, 10**6):
    careful_step(step)
"""
    gang = Gang(tmp_path / "job", program).until_step(3, task="worker-1")
    assert control.ask(gang.run.path, {"ask": "stacks"}) == {"ok": True}
    for task in ("worker-0", "worker-1"):
        gang.until(
            lambda gang, task=task: any(  # type: ignore[misc]
                line.startswith(f"{task}|") and "program.py" in line for line in gang.lines
            ),
            f"stack of {task}",
        )
    before = gang.state.tasks["worker-1"].step or 0
    gang.until(lambda gang: (gang.state.tasks["worker-1"].step or 0) > before + 5, "more steps")
    assert gang.state.generation == 1


def test_who_asks_while_the_stacks_are_being_written_gets_them_once_more(home: Path, tmp_path: Path) -> None:
    gang = Gang(tmp_path / "job", "import time; print('up'); time.sleep(600)", roles={"worker": 1})
    gang.until(lambda gang: "worker-0| up" in gang.lines, "first line")
    for _ in range(2):
        control.ask(gang.run.path, {"ask": "stacks"})
    shown = "worker-0| oarlock: worker-0 has shown its stacks"
    gang.until(lambda gang: gang.lines.count(shown) == 2, "two answers")
    said = [line for line in gang.lines if "oarlock:" in line or "most recent call" in line]
    begin = "worker-0| oarlock: worker-0 shows its stacks:"
    assert (said[0], said[2], said[3], said[5]) == (begin, shown, begin, shown), said


def test_a_task_without_python_is_not_killed_by_the_question(home: Path, tmp_path: Path) -> None:
    gang = Gang(tmp_path / "job", "", command=["sh", "-c", "echo up; sleep 600"], roles={"worker": 1})
    gang.until(lambda gang: "worker-0| up" in gang.lines, "first line")
    assert control.ask(gang.run.path, {"ask": "stacks"}) == {"ok": True}
    gang.until(lambda gang: any("no Python" in line for line in gang.lines), "answer")
    assert gang.state.tasks["worker-0"].state == "running"
