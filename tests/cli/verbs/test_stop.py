"""`oarlock stop`: gracefully, and with --now."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT, Command
from tests.support.small_programs import STUBBORN, has_said, write
from tests.support.waiting import eventually

# It would leave before a step that never comes.
STUCK = """
import time, oarlock
state = oarlock.State(sum=0)
for step in state.steps(10**6, save=None):
    print("here I am", flush=True)
    time.sleep(10**6)
"""


def test_stop_waits_until_it_has_ended_and_may_be_repeated(oarlock: Command, living: RunFolder) -> None:
    done = oarlock("stop")
    assert (done.returncode, done.stdout) == (0, "living stopped\n")
    assert "stopping living: its tasks have 30 s to end" in done.stderr
    assert not living.is_held()
    again = oarlock("stop", "living")
    assert (again.returncode, again.stdout) == (0, "living has already ended: stopped\n")
    state = json.loads(oarlock("stop", "--json").stdout)
    assert (state["run"], state["state"], state["code"]) == ("living", "stopped", 130)
    assert "folders" in state


def test_stop_returns_only_when_the_tasks_have_left(oarlock: Command, tmp_path: Path) -> None:
    write(
        tmp_path / "train.py",
        """
        import pathlib, signal, time
        def leave(*_):
            while not pathlib.Path("leave").exists():
                time.sleep(0.02)
            raise SystemExit(0)
        signal.signal(signal.SIGTERM, leave)
        print("here I am", flush=True)
        while True:
            time.sleep(0.02)
        """,
    )
    oarlock("run", "-d", "--name", "slow", "train.py")
    run = runs.find("slow")
    eventually(lambda: has_said(run, "here I am"), "sign of life")
    stopping = subprocess.Popen([SCRIPT, "stop"], env=os.environ, stdout=subprocess.PIPE, text=True)
    eventually(lambda: run.state().state == "stopping", "stop")
    assert stopping.poll() is None
    (tmp_path / "leave").touch()
    assert stopping.communicate(timeout=300)[0] == "slow stopped\n"


def test_stop_now_does_not_wait_for_the_stubborn(oarlock: Command, tmp_path: Path) -> None:
    write(tmp_path / "train.py", STUBBORN)
    oarlock("run", "-d", "--set", "limits.grace=1h", "--name", "wilful", "train.py")
    eventually(lambda: has_said(runs.find("wilful"), "here I am"), "sign of life")
    done = oarlock("stop", "--now", timeout=300)
    assert (done.returncode, done.stdout) == (0, "wilful stopped\n")


@pytest.mark.parametrize("program", [STUBBORN, STUCK], ids=["stubborn", "stuck"])
def test_stop_now_ends_what_a_stop_only_asked_to_leave(
    oarlock: Command, tmp_path: Path, program: str
) -> None:
    write(tmp_path / "train.py", program)
    oarlock("run", "-d", "-n", "2", "--set", "limits.grace=1h", "--name", "wilful", "train.py")
    run = runs.find("wilful")
    eventually(lambda: has_said(run, "here I am"), "sign of life")
    asking = subprocess.Popen([SCRIPT, "stop"], env=os.environ, stdout=subprocess.PIPE, text=True)
    eventually(lambda: run.state().state == "stopping", "stop")
    done = oarlock("stop", "--now", timeout=300)
    assert (done.returncode, done.stdout) == (0, "wilful stopped\n")
    assert asking.communicate(timeout=300)[0] == "wilful stopped\n"
