"""`oarlock scale`: a live run with more or fewer workers, and what it may have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.net import control
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.small_programs import has_said, write
from tests.support.waiting import eventually

STEPS = """
import os, time, oarlock
me = oarlock.current()
machine = "/".join(os.environ.get(name, "-") for name in ("GROUP_RANK", "GROUP_WORLD_SIZE"))
print(f"rank {me.rank} of {me.world} on machine {machine}")
for step in range(1, 10**6):
    me.report(step)
    time.sleep(0.02)
"""

Start = Callable[..., RunFolder]


@pytest.fixture
def start(oarlock: Any, tmp_path: Path) -> Start:
    """Without a single restart to spare: whatever is charged ends the run."""

    def make(*words: str, program: str = STEPS) -> RunFolder:
        write(tmp_path / "train.py", program)
        options = ["-d", "--name", "living", "--set", "limits.restarts=0"]
        started = oarlock("run", *options, *words, "train.py")
        assert started.returncode == 0, started.stderr
        return runs.find("living")

    return make


def until_running(run: RunFolder, tasks: int) -> None:
    eventually(lambda: [one.state for one in run.state().tasks.values()] == ["running"] * tasks, "gang")


def until_said(run: RunFolder, world: int, machines: str = "0/1") -> None:
    """By the last of them, in the latest generation."""
    log = run.path / "logs" / str(run.state().generation) / f"worker-{world - 1}.log"
    text = f"rank {world - 1} of {world} on machine {machines}"
    eventually(lambda: log.exists() and text in log.read_text(), text)


def test_a_live_run_is_scaled_up_and_down(oarlock: Any, start: Start) -> None:
    run = start("-n", "2")
    until_running(run, 2)
    for generation, (words, workers) in enumerate([(["living", "4"], 4), (["1"], 1), (["3"], 3)], start=2):
        done = oarlock("scale", *words)
        noun = "worker" if workers == 1 else "workers"
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"living runs with {workers} {noun} in generation {generation}\n"
        state = run.state()
        assert list(state.tasks) == [f"worker-{index}" for index in range(workers)]
        assert {task.state for task in state.tasks.values()} == {"running"}
        assert (state.state, state.restarts, state.failure) == ("running", 0, None)
        until_said(run, workers)
    listed = [line.split()[0] for line in oarlock("status").stdout.splitlines() if line.startswith("worker-")]
    assert listed == ["worker-0", "worker-1", "worker-2"]
    assert "scaled to 1 worker; restarting the gang" in oarlock("events").stdout


def test_scaling_to_what_it_has_changes_nothing(oarlock: Any, start: Start) -> None:
    run = start("-n", "2")
    until_running(run, 2)
    done = oarlock("scale", "2", "--json")
    assert done.returncode == 0, done.stderr
    state = json.loads(done.stdout)
    assert (state["run"], state["generation"], len(state["tasks"])) == ("living", 1, 2)
    assert "time" in state


def test_only_workers_are_scaled(oarlock: Any, start: Start) -> None:
    run = start("-n", "1", "--set", "roles.chief.replicas=1", "--evaluator")
    until_running(run, 3)
    assert oarlock("scale", "2").returncode == 0
    assert list(run.state().tasks) == ["chief-0", "worker-0", "worker-1", "evaluator-0"]


def test_a_worker_is_all_of_its_processes(oarlock: Any, start: Start) -> None:
    run = start("-n", "1", "--set", "roles.worker.processes=2")
    until_running(run, 2)
    assert oarlock("scale", "2").stdout == "living runs with 2 workers in generation 2\n"
    assert len(run.state().tasks) == 4


def test_several_machines_have_room_for_as_many_as_they_began_with(oarlock: Any, start: Start) -> None:
    run = start("-n", "4", "--machines", "2")
    until_running(run, 4)
    refused = oarlock("scale", "5")
    assert (refused.returncode, refused.stdout) == (2, "")
    reason = "it can have 1 to 4 workers: its 2 machines have room for no more"
    assert refused.stderr.splitlines()[0] == f"oarlock: living: {reason}"
    assert run.state().generation == 1
    for workers, machines in ((1, "0/1"), (3, "1/2"), (4, "1/2")):
        assert oarlock("scale", str(workers)).returncode == 0
        assert len(run.state().tasks) == workers
        until_said(run, workers, machines)
    assert run.state().restarts == 0


def test_a_job_with_a_range_is_scaled_within_it(oarlock: Any, start: Start) -> None:
    run = start("-n", "2..3")
    until_running(run, 3)
    for workers in ("1", "4"):
        refused = oarlock("scale", workers)
        assert refused.returncode == 2
        assert (
            refused.stderr.splitlines()[0] == "oarlock: living: it can have 2 to 3 workers, as its job says"
        )
    assert oarlock("scale", "2").returncode == 0
    assert len(run.state().tasks) == 2


def test_a_gang_that_is_still_waiting_to_start_is_scaled_too(
    oarlock: Any, start: Start, tmp_path: Path
) -> None:
    """The import that everybody waits for is over only after the question."""
    (tmp_path / "slow").mkdir()
    write(
        tmp_path / "slow" / "torch.py",
        """
        import pathlib, time
        deadline = time.monotonic() + 60
        while not pathlib.Path("go").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        class cuda:
            is_initialized = staticmethod(lambda: False)
        def manual_seed(number): pass
        """,
    )
    slow = ["--framework", "torch", "--env", f"PYTHONPATH={tmp_path / 'slow'}"]
    run = start("-n", "2", *slow, program="import torch" + STEPS)
    eventually(lambda: (run.path / "address").exists(), "agent")
    assert control.ask(run.path, {"ask": "scale", "workers": 3})["ok"]
    assert run.state().generation == 0
    (tmp_path / "go").touch()
    until_running(run, 3)
    assert run.state().generation == 1


def test_a_failure_remains_one_when_the_run_is_scaled_meanwhile(oarlock: Any, start: Start) -> None:
    """In the two seconds in which a stalled gang shows its stacks: too few for a process that has to start
    before it asks. Only the first generation reports, so no other can stall."""
    program = STEPS.replace("me.report(step)", "me.generation == 1 and (me.report(step), time.sleep(600))")
    run = start("-n", "2", "--set", "limits.restarts=1", "--set", "limits.stall=1s", program=program)
    eventually(lambda: has_said(run, "shows its stacks"), "stall")
    assert control.ask(run.path, {"ask": "scale", "workers": 3})["ok"]
    assert oarlock("scale", "3").stdout == "living runs with 3 workers in generation 2\n"
    state = run.state()
    assert state.restarts == 1
    [restart] = [event for event in run.events() if event["kind"] == "restart"]
    assert (restart["forgiven"], restart["left"]) == (False, 0)
    assert "limits.stall" in restart["reason"]


def test_what_makes_no_sense_is_refused(oarlock: Any, start: Start) -> None:
    until_running(start(), 1)
    for words, complaint in (
        (["0"], "living: it can have 1 to 64 workers"),
        (["65"], "living: it can have 1 to 64 workers"),
        (["many"], "many is not a number of workers"),
        (["living"], "living is not a number of workers; for example: oarlock scale living 4"),
        (["living", "other", "3"], "expected [RUN] N, found living other 3"),
        ([], "Missing argument"),
        (["nobody", "3"], "there is no run called nobody"),
    ):
        done = oarlock("scale", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"oarlock: {complaint}"), done.stderr


def test_a_run_that_has_ended_is_not_scaled(oarlock: Any, records: Path) -> None:
    done = oarlock("scale", "bad-run", "3")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "oarlock: bad-run is not running: it has failed",
    )
