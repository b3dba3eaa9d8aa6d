"""`oarlock stacks`: every running task's answer, told apart from whatever else it writes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT
from tests.support.small_programs import has_said, who_said, write
from tests.support.waiting import eventually

# Threads in a function of their own, a progress bar without an end, and lines that look like a stack's.
BUSY = """
import threading, time, oarlock
me = oarlock.current()
def load_examples():
    time.sleep(10**6)
for _ in range(60):
    threading.Thread(target=load_examples, daemon=True).start()
def careful_step():
    for step in range(1, 10**6):
        me.report(step)
        print("  File of the step", step)
        print(f"\\rstep {step}", end="", flush=True)
        time.sleep(0.01)
careful_step()
"""

Start = Callable[..., RunFolder]


@pytest.fixture
def start(oarlock: Any, tmp_path: Path) -> Start:
    def make(program: str, *words: str, said: str) -> RunFolder:
        write(tmp_path / "train.py", program)
        started = oarlock("run", "-d", "--name", "living", *words, "train.py")
        assert started.returncode == 0, started.stderr
        run = runs.find("living")
        eventually(lambda: has_said(run, said) and run.state().state == "running", "sign of life")
        return run

    return make


def test_every_task_shows_all_of_its_threads(oarlock: Any, start: Start) -> None:
    run = start(BUSY, "-n", "2", said="of the step 3")
    eventually(lambda: all(task.step for task in run.state().tasks.values()), "step of both")
    done = oarlock("stacks", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(one["task"], one["state"]) for one in told] == [("worker-0", "shown"), ("worker-1", "shown")]
    for one in told:
        assert set(one) == {"task", "state", "stack"}
        heads = [line for line in one["stack"] if not line.startswith("  ")]
        assert len(heads) == 61, one["stack"]
        assert all(head.endswith("(most recent call first):") for head in heads)
        assert sum("in load_examples" in line for line in one["stack"]) == 60
        assert sum("in careful_step" in line for line in one["stack"]) == 1
        assert not [
            line for line in one["stack"] if "of the step" in line or "agent/zygote/runner.py" in line
        ]
    state = run.state()
    assert (state.generation, state.state) == (1, "running")
    before = state.tasks["worker-1"].step or 0
    eventually(lambda: (run.state().tasks["worker-1"].step or 0) > before, "more steps")


def test_stacks_for_people_and_of_one_task(oarlock: Any, start: Start) -> None:
    asleep = BUSY.replace("sleep(0.01)", "sleep(0.01 if step < 5 else 600)")
    run = start(asleep, "-n", "2", said="of the step 5")
    eventually(lambda: "worker-1" in who_said(run, "of the step 5"), "step")
    done = oarlock("stacks", "living", "--task", "worker-1")
    first, second, *_ = done.stdout.splitlines()
    assert (done.returncode, first) == (0, "worker-1")
    assert second.startswith("  ")
    assert "worker-0" not in done.stdout
    assert 'train.py", line 13 in careful_step\n' in done.stdout


def test_several_who_ask_at_once_all_get_a_whole_answer(start: Start, home: Path) -> None:
    run = start(BUSY, said="of the step 3")
    eventually(lambda: run.state().tasks["worker-0"].step, "step")
    asking = [
        subprocess.Popen([SCRIPT, "stacks", "--json"], env=os.environ, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in asking:
        [told] = json.loads(process.communicate(timeout=300)[0])
        assert told["state"] == "shown"
        assert len([line for line in told["stack"] if not line.startswith("  ")]) == 61


def test_who_cannot_answer_is_told_apart(oarlock: Any, start: Start) -> None:
    program = """
        import os, signal, time
        print("here I am", flush=True)
        if os.environ["OARLOCK_RANK"] == "0":
            os.kill(os.getpid(), signal.SIGSTOP)
        if os.environ["OARLOCK_RANK"] == "1":
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
        if os.environ["OARLOCK_RANK"] == "2":
            os.execvp("sh", ["sh", "-c", "echo now a shell; sleep 600"])
        print("and there", flush=True)
        time.sleep(600)
    """
    run = start(program, "-n", "4", said="now a shell")
    eventually(lambda: who_said(run, "and there") == {"worker-1", "worker-3"}, "all in their places")
    eventually(lambda: _is_stopped(run.state().tasks["worker-0"].pid), "stop of worker-0")
    done = oarlock("stacks", "--json")
    assert done.returncode == 1
    told = {one["task"]: one for one in json.loads(done.stdout)}
    assert [one["state"] for one in told.values()] == ["stopped", "no answer", "no python", "shown"]
    assert [bool(one["stack"]) for one in told.values()] == [False, False, False, True]
    some = oarlock("stacks", "--task", "worker-0", "--task", "worker-2")
    assert some.returncode == 0
    stopped, shell = some.stdout.splitlines()
    assert stopped.startswith("worker-0 is stopped (SIGSTOP or a debugger)")
    assert shell == "worker-2 has no Python to show stacks of"
    assert {task.state for task in run.state().tasks.values()} == {"running"}


def test_what_does_not_run_has_no_stacks(oarlock: Any, records: Path) -> None:
    done = oarlock("stacks", "good-run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == "oarlock: good-run is not running: it has succeeded"


def test_a_task_that_is_not_there_or_has_ended(oarlock: Any, start: Start) -> None:
    program = """
        import os, time
        print("here I am", flush=True)
        if os.environ["OARLOCK_RANK"] == "0":
            time.sleep(600)
    """
    run = start(program, "-n", "2", said="here I am")
    eventually(lambda: run.state().tasks["worker-1"].state == "finished", "end of worker-1")
    done = oarlock("stacks", "--task", "worker-9")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "oarlock: living has no task worker-9; it has worker-0, worker-1",
    )
    done = oarlock("stacks", "--task", "worker-1")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "oarlock: worker-1 is not running: it is finished",
    )
    assert [one["task"] for one in json.loads(oarlock("stacks", "--json").stdout)] == ["worker-0"]


def _is_stopped(pid: int | None) -> bool:
    return pid is not None and "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()
