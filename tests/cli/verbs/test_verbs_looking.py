"""`ps`, `status`, `events`, `schema` and `version`: what they say and the shape of their JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from oarlock import __version__
from oarlock.records import runs
from tests.support.small_programs import ENDLESS, eventually, write

STATE = {
    *("run", "job", "engine", "state", "created", "started", "ended", "updated", "generation", "restarts"),
    *("agent", "code", "reason", "failure", "workers", "problem", "straggler", "tasks", "notes", "time"),
    *("folders", "host", "version", "images"),
}
TIME = {"total", "start", "rendezvous", "step", "checkpoint", "lost", "waiting", "goodput"}
TASK = {
    *("name", "state", "pid", "code", "starts", "step", "total", "rate", "reported", "busy", "metrics"),
    "eta",
}
FOLDERS = {"record", "program", "data", "checkpoints", "model", "logs"}


def test_ps_lists_runs_newest_first(oarlock: Any, records: Path) -> None:
    done = oarlock("ps")
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header[:5] == ["RUN", "STATE", "GENERATION", "RESTARTS", "TASKS"]
    assert [row[0] for row in rows] == [run.name for run in runs.all_runs()]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["bad-run"][:4] == ["failed", "2", "1", "2"]
    assert by_name["good-run"][:6] == ["succeeded", "1", "0", "2", "20/20", "0.05"]
    assert header[-3:] == ["GOODPUT", "AGE", "DURATION"]
    assert all(re.fullmatch(r"\d+%", row[-3]) for row in rows)


def test_ps_and_status_give_runs_in_one_shape(oarlock: Any, records: Path) -> None:
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


def test_ps_shows_the_latest_twenty_unless_asked_for_all(oarlock: Any, home: Path) -> None:
    for number in range(23):
        folder = home / "runs" / f"run-{number}"
        folder.mkdir(parents=True)
        (folder / "job.yaml").touch()
        (folder / "events.jsonl").touch()
    done = oarlock("ps")
    assert len(done.stdout.splitlines()) == 21
    assert "3 older runs" in done.stderr
    assert len(oarlock("ps", "--all").stdout.splitlines()) == 24
    assert len(json.loads(oarlock("ps", "--json").stdout)) == 20


def test_ps_without_runs(oarlock: Any) -> None:
    assert (oarlock("ps").stdout, oarlock("ps", "--json").stdout) == ("no runs yet\n", "[]\n")


def test_status_tells_everything(oarlock: Any, records: Path) -> None:
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


def test_a_living_run_and_a_lost_one(oarlock: Any, tmp_path: Path) -> None:
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


def test_events_are_told_a_line_each(oarlock: Any, records: Path) -> None:
    lines = [line.partition("  ")[2] for line in oarlock("events", "again-run").stdout.splitlines()]
    assert lines[0] == "run of again: 2 tasks"
    assert "generation 1: 2 tasks" in lines
    assert "worker-1 failed: RuntimeError: only once; restarting (2 left)" in lines
    assert lines[-1] == "succeeded, exit code 0"


def test_events_as_json_are_the_record(oarlock: Any, records: Path) -> None:
    record = [json.loads(line) for line in (records / "runs/again-run/events.jsonl").read_text().splitlines()]
    for words in (["--json"], ["--json", "-f"]):
        done = oarlock("events", "again-run", *words)
        assert [json.loads(line) for line in done.stdout.splitlines()] == record
    some = oarlock("events", "again-run", "--json", "--kind", "restart", "--kind", "end").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in some] == ["restart", "end"]


@pytest.mark.parametrize("words", [["schema"], ["schema", "--json"]])
def test_schema(oarlock: Any, words: list[str]) -> None:
    schema = json.loads(oarlock(*words).stdout)
    assert schema["type"] == "object"
    assert {"program", "roles", "limits"} <= set(schema["properties"])


def test_version(oarlock: Any) -> None:
    assert oarlock("version").stdout == oarlock("--version").stdout == f"oarlock {__version__}\n"
    told = json.loads(oarlock("version", "--json").stdout)
    assert set(told) == {"oarlock", "python"}
    assert told["oarlock"] == __version__
