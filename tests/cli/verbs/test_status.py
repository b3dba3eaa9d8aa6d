"""`oarlock status`: what it says about a run, and the shape of a run in JSON, which `ps` shares."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from oarlock.records import runs
from tests.support.commands import Command
from tests.support.run_shape import FOLDERS, STATE, TASK, TIME
from tests.support.small_programs import ENDLESS, write
from tests.support.waiting import eventually


def test_ps_and_status_give_runs_in_one_shape(oarlock: Command, records: Path) -> None:
    listed = {state["run"]: state for state in json.loads(oarlock("ps", "--json").stdout)}
    assert set(listed) == {"good-run", "bad-run", "abrupt-run", "again-run"}
    for name, state in listed.items():
        assert set(state) == STATE
        assert set(state["time"]) == TIME
        assert state["time"]["total"] == pytest.approx(state["ended"] - state["created"], abs=2e-6)
        assert set(state["folders"]) == FOLDERS
        assert all(set(task) == TASK for task in state["tasks"])
        assert json.loads(oarlock("status", name, "--json").stdout) == state
    assert listed["bad-run"]["failure"]["type"] == "ValueError"
    assert listed["bad-run"]["failure"]["refusal"].startswith("it failed twice")
    assert listed["again-run"]["restarts"] == 1
    assert sorted(listed["good-run"]["notes"]) == ["worker-0: half way", "worker-1: half way"]


def test_status_tells_everything(oarlock: Command, records: Path) -> None:
    text = oarlock("status", "bad-run").stdout
    assert text.startswith("bad-run failed, exit code 1\njob bad, local, generation 2, 1 restart\n")
    assert "worker-1: ValueError: no such thing" in text
    assert "bad.py:5" in text
    assert "not restarted: it failed twice" in text
    assert str(records / "runs" / "bad-run" / "checkpoints") in text
    assert "  | four" in oarlock("status", "abrupt-run").stdout
    good = oarlock("status", "good-run").stdout
    assert "accuracy 1" in good
    assert "half way" in good
    assert re.search(r"^time \S+: step \S+ \(goodput \d+%\), start \S+", good, re.MULTILINE)


def test_a_living_run_and_a_lost_one(oarlock: Command, tmp_path: Path) -> None:
    write(tmp_path / "train.py", ENDLESS)
    oarlock("run", "-d", "--name", "alive", "train.py")
    eventually(lambda: runs.find("alive").state().state == "running", "start")
    state = json.loads(oarlock("status", "--json").stdout)
    assert (state["state"], state["code"]) == ("running", None)
    known = state["updated"] - state["created"]
    assert state["time"]["total"] > known + 0.001  # up to now, not only to its last event
    assert state["time"]["goodput"] is None  # a program that has not reported yet may never do so
    assert "(goodput" not in oarlock("status").stdout
    lost = runs.home() / "runs" / "lost"
    lost.mkdir()
    (lost / "job.yaml").touch()
    (lost / "events.jsonl").write_text('{"t": 1.0, "kind": "run", "job": "x", "tasks": ["worker-0"]}\n')
    assert oarlock("status", "lost").stdout.startswith("lost lost: its agent process is gone")
    assert (
        json.loads(oarlock("status", "lost", "--json").stdout)["time"]["total"] == 0
    )  # its last sign was its first
