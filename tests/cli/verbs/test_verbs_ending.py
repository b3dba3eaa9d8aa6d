"""`attach`, `stop` and `delete`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from oarlock.records import runs
from tests.support.small_programs import ENDLESS, SCRIPT, STUBBORN, eventually, has_said, write

# It would leave before a step that never comes.
STUCK = """
import time, oarlock
state = oarlock.State(sum=0)
for step in state.steps(10**6, save=None):
    print("here I am", flush=True)
    time.sleep(10**6)
"""


@pytest.fixture
def living(oarlock: Any, tmp_path: Path) -> runs.RunFolder:
    """A run that goes on until it is stopped."""
    write(tmp_path / "train.py", ENDLESS)
    oarlock("run", "-d", "--name", "living", "train.py")
    run = runs.find("living")
    eventually(lambda: has_said(run, "here I am"), "sign of life")
    return run


def test_stop_waits_until_it_has_ended_and_may_be_repeated(oarlock: Any, living: runs.RunFolder) -> None:
    done = oarlock("stop")
    assert (done.returncode, done.stdout) == (0, "living stopped\n")
    assert "stopping living: its tasks have 30 s to end" in done.stderr
    assert not living.is_held()
    again = oarlock("stop", "living")
    assert (again.returncode, again.stdout) == (0, "living has already ended: stopped\n")
    state = json.loads(oarlock("stop", "--json").stdout)
    assert (state["run"], state["state"], state["code"]) == ("living", "stopped", 130)
    assert "folders" in state


def test_stop_returns_only_when_the_tasks_have_left(oarlock: Any, tmp_path: Path) -> None:
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
    assert stopping.communicate(timeout=60)[0] == "slow stopped\n"


def test_stop_now_does_not_wait_for_the_stubborn(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", STUBBORN)
    oarlock("run", "-d", "--set", "limits.grace=1h", "--name", "wilful", "train.py")
    eventually(lambda: has_said(runs.find("wilful"), "here I am"), "sign of life")
    done = oarlock("stop", "--now", timeout=60)
    assert (done.returncode, done.stdout) == (0, "wilful stopped\n")


@pytest.mark.parametrize("program", [STUBBORN, STUCK], ids=["stubborn", "stuck"])
def test_stop_now_ends_what_a_stop_only_asked_to_leave(oarlock: Any, tmp_path: Path, program: str) -> None:
    write(tmp_path / "train.py", program)
    oarlock("run", "-d", "-n", "2", "--set", "limits.grace=1h", "--name", "wilful", "train.py")
    run = runs.find("wilful")
    eventually(lambda: has_said(run, "here I am"), "sign of life")
    asking = subprocess.Popen([SCRIPT, "stop"], env=os.environ, stdout=subprocess.PIPE, text=True)
    eventually(lambda: run.state().state == "stopping", "stop")
    done = oarlock("stop", "--now", timeout=60)
    assert (done.returncode, done.stdout) == (0, "wilful stopped\n")
    assert asking.communicate(timeout=60)[0] == "wilful stopped\n"


def test_attach_to_a_run_that_ended_gives_its_end(oarlock: Any, records: Path) -> None:
    done = oarlock("attach", "abrupt-run")
    assert (done.returncode, done.stdout) == (7, "")
    assert "abrupt-run failed" in done.stderr
    *happened, state = map(json.loads, oarlock("attach", "--json", "abrupt-run").stdout.splitlines())
    assert happened == list(runs.find("abrupt-run").events())
    assert (state["kind"], state["run"], state["code"]) == ("state", "abrupt-run", 7)


def test_delete_frees_the_folder(oarlock: Any, tmp_path: Path) -> None:
    write(
        tmp_path / "train.py", "import oarlock; (oarlock.current().model / 'w').write_bytes(b'x' * 300_000)"
    )
    oarlock("run", "--name", "big", "train.py")
    prefix = oarlock("delete", "bi")
    assert (prefix.returncode, prefix.stderr) == (
        2,
        "oarlock: there is no run called bi; did you mean big?\n",
    )
    done = oarlock("delete", "big")
    assert done.returncode == 0
    assert done.stdout.startswith("deleted big: 3")
    assert done.stdout.endswith(" kB freed\n")
    assert runs.all_runs() == []
    assert oarlock("delete", "big").returncode == 2


def test_delete_keeps_what_runs_unless_forced(oarlock: Any, living: runs.RunFolder, tmp_path: Path) -> None:
    (tmp_path / "short.py").touch()
    oarlock("run", "--name", "short", "short.py")
    refused = oarlock("delete", "short", "living")
    assert refused.returncode == 1
    assert "living is running" in refused.stderr
    assert len(runs.all_runs()) == 2
    [freed] = json.loads(oarlock("delete", "--finished", "--json").stdout)
    assert freed["run"] == "short"
    assert freed["freed"] > 0
    assert [run.name for run in runs.all_runs()] == ["living"]
    assert oarlock("delete", "--force", "living").returncode == 0
    assert runs.all_runs() == []


def test_delete_wants_to_know_which(oarlock: Any) -> None:
    assert oarlock("delete").returncode == 2
    assert oarlock("delete", "--finished").stdout == "there was nothing to delete\n"
