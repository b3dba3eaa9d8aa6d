"""RunState: what the events of a run amount to."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from oarlock.run.accounting import PARTS
from oarlock.run.run_events import decode, encode, read
from oarlock.run.run_state import RunState, fold
from oarlock.run.typed import VERSION, LaterVersion
from tests.support import odd
from tests.support.known_events import KNOWN, STARTED


def run_of(*told: dict[str, Any]) -> RunState:
    """Events a second apart, after the usual beginning."""
    start: list[dict[str, Any]] = [
        {"kind": "run", "job": "mnist", "engine": "local", "tasks": ["worker-0", "worker-1"]},
        {"kind": "agent", "pid": 7, "host": "here"},
        {"kind": "generation", "generation": 1, "tasks": ["worker-0", "worker-1"]},
    ]
    return fold(
        "mnist-abcd", [{"t": 100.0 + second, **event} for second, event in enumerate([*start, *told])]
    )


def test_a_run_goes_through_its_states() -> None:
    failed = {"kind": "restart", "task": "worker-1", "reason": "killed by SIGKILL", "left": 2}
    formed = {"kind": "generation", "generation": 2, "tasks": ["worker-0", "worker-1"]}
    end = {"kind": "end", "state": "succeeded", "code": 0}
    told: list[dict[str, Any]] = [STARTED, failed, formed, STARTED, {"kind": "stop", "reason": "asked"}, end]
    states = [run_of(*told[:count]).state for count in range(len(told) + 1)]
    assert states == [
        "starting",
        "running",
        "restarting",
        "restarting",
        "running",
        "stopping",
        "succeeded",
    ]


def test_rate_and_eta_come_from_reports() -> None:
    reports = [
        {"kind": "report", "task": "worker-0", "step": step, "total": 100, "loss": 1.0}
        for step in (10, 20, 30)
    ]
    task = run_of(STARTED, *reports).tasks["worker-0"]
    assert (task.step, task.total, task.rate, task.eta) == (30, 100, 10.0, 7.0)
    assert task.metrics == {"loss": 1.0}


def test_a_burst_of_reports_and_a_slow_step_hardly_change_the_rate() -> None:
    def rate(*reports: tuple[float, int]) -> float:
        told = [{"t": t, "kind": "report", "task": "worker-0", "step": step} for t, step in reports]
        return fold("mnist-abcd", told).tasks["worker-0"].rate or 0

    bursts = [(t + late, 10 * t + steps) for t in range(0, 60, 3) for late, steps in ((0.1, 0), (0.2, 29))]
    assert rate(*bursts) == pytest.approx(10, rel=0.2)
    assert rate(*bursts[:-1]) == pytest.approx(10, rel=0.2)
    even = [(float(t), 10 * t) for t in range(60)]
    assert rate(*even, (64.0, 600)) == pytest.approx(8, rel=0.1)  # five seconds for ten steps
    slow = [(60.0 * t, t) for t in range(10)]
    assert rate(*slow, (660.0, 10)) == pytest.approx(0.8 / 60, rel=0.1)  # one that takes twice as long


def test_a_restart_from_a_checkpoint_does_not_make_the_rate_negative() -> None:
    reports = [{"kind": "report", "task": "worker-0", "step": step} for step in (10, 20, 15, 25)]
    rate = run_of(STARTED, *reports).tasks["worker-0"].rate
    assert rate == pytest.approx(10.0)


def test_what_counts_something_else_begins_with_a_rate_of_its_own() -> None:
    """An ingest fetches millions of bytes a second, then makes thousands of examples."""
    fetched = [{"kind": "report", "task": "worker-0", "step": n * 10**7, "total": 10**8} for n in (0, 5, 10)]
    made = [{"kind": "report", "task": "worker-0", "step": n * 100, "total": 300} for n in (1, 2, 3)]
    assert run_of(*fetched, made[0]).tasks["worker-0"].rate is None
    task = run_of(*fetched, *made).tasks["worker-0"]
    assert (task.step, task.total, task.rate, task.eta) == (300, 300, 100.0, 0.0)


def test_a_task_we_ended_was_killed_one_that_ended_itself_failed() -> None:
    ours = {"kind": "task", "task": "worker-0", "state": "ended", "code": 137, "ours": True}
    theirs = {"kind": "task", "task": "worker-1", "state": "ended", "code": 7, "ours": False}
    tasks = run_of(STARTED, ours, theirs).tasks
    assert (tasks["worker-0"].state, tasks["worker-1"].state) == ("killed", "failed")


def test_a_failed_run_names_its_culprit() -> None:
    end = {
        "kind": "end",
        "state": "failed",
        "code": 7,
        "task": "worker-1",
        "reason": "ValueError: no",
        "type": "ValueError",
        "message": "no",
        "where": "train.py:3",
    }
    state = run_of(STARTED, end)
    assert state.failure is not None
    assert (state.code, state.failure.task, state.failure.where) == (7, "worker-1", "train.py:3")


def test_resuming_makes_a_failed_run_start_again() -> None:
    state = run_of(STARTED, {"kind": "end", "state": "failed", "code": 1}, {"kind": "agent", "pid": 8})
    assert (state.state, state.code, state.ended, state.agent) == ("starting", None, None, 8)


def test_what_is_not_known_is_passed_over() -> None:
    """An older client reads a newer run: unknown kinds and fields are no reason to fail."""
    state = run_of({"kind": "eclipse", "moon": 1}, {**STARTED, "colour": "red"})
    assert state.state == "running"


def test_data_goes_there_and_back() -> None:
    end = {"kind": "end", "state": "failed", "code": 7, "task": "worker-1", "reason": "exit code 7"}
    report = {"kind": "report", "task": "worker-0", "step": 3, "total": 9, "loss": 0.5}
    state = run_of(STARTED, report, end)
    assert RunState.from_data(json.loads(json.dumps(state.to_data()))) == state


def test_a_state_takes_whatever_is_read() -> None:
    """And so does what is made of it: its data, the accounts, and the way back."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)
    state, taken = RunState("mnist-abcd"), 0
    for number in range(1000 * odd.ROUNDS):
        if number % 50 == 0:
            state = RunState("mnist-abcd")
        told: Any = {"t": source.choice([1.0, 2.0, float(number)]), **source.choice(KNOWN)}
        for _ in range(source.randrange(3)):
            told = odd.change(source, told)
        event = read(told)
        if event is None:
            continue
        taken += 1
        assert read(event) == event
        assert decode(encode(event)) == event
        state.apply(event)
        assert sum(state.accounts.in_seconds(number)[part] or 0 for part in PARTS) >= 0
        kept = json.dumps(state.to_data(), allow_nan=False)
        if state.version > VERSION:  # which the way back refuses, as it should
            state = RunState("mnist-abcd")
        else:
            assert json.dumps(RunState.from_data(json.loads(kept)).to_data()) == kept
    assert taken > 300


def test_a_state_with_fields_of_a_later_version_is_read_and_nonsense_is_refused() -> None:
    told = run_of(STARTED, KNOWN[6]).to_data()
    later = {**told, "colour": "red", "tasks": [{**task, "colour": "red"} for task in told["tasks"]]}
    assert RunState.from_data(later) == run_of(STARTED, KNOWN[6])
    with pytest.raises(LaterVersion, match="record version 9, this one reads up to 1"):
        RunState.from_data({**told, "version": 9})
    refused: list[Any] = [None, [], {}, {**told, "tasks": 3}, {**told, "run": 3}, {**told, "accounts": []}]
    for nonsense in refused:
        with pytest.raises(ValueError):  # noqa: PT011
            RunState.from_data(nonsense)


def test_an_ingest_starts_once_though_it_has_three_steps_and_shows_who_still_works() -> None:
    def step(task: str, state: str, **more: Any) -> dict[str, Any]:
        return {"t": 1.0, "kind": "task", "task": task, "state": state, **more}

    state = fold("r", [{"t": 0.0, "kind": "run", "tasks": ["worker-0"]}])
    for task in ("ingest-worker-0", "ingest-worker-1"):
        for _ in range(3):
            state.apply(step(task, "started", pid=1))
            state.apply(step(task, "ended", code=0))
    assert (state.state, state.tasks["ingest-worker-0"].starts) == ("ingesting", 1)
    state.apply(step("ingest-worker-1", "started", pid=2))
    assert state.foremost is state.tasks["ingest-worker-1"]
    state.apply(step("ingest-worker-1", "ended", code=137))
    state.apply(step("ingest-worker-1", "started", pid=3))
    assert state.tasks["ingest-worker-1"].starts == 2


def test_what_gpus_said_lasts_until_the_next_generation() -> None:
    told = {"memory": 5, "memory_total": 9, "gpus": ["1"]}
    events: list[dict[str, Any]] = [
        {"t": 0.0, "kind": "run", "job": "j", "tasks": ["worker-0"]},
        {"t": 1.0, "kind": "generation", "generation": 1, "tasks": ["worker-0"]},
        {"t": 2.0, "kind": "gpu", "task": "worker-0", **told},
    ]
    state = fold("r", events)
    assert state.tasks["worker-0"].gpu == told
    assert RunState.from_data(state.to_data()).tasks["worker-0"].gpu == state.tasks["worker-0"].gpu
    state.apply({"t": 9.0, "kind": "generation", "generation": 2, "tasks": ["worker-0"]})
    assert state.tasks["worker-0"].gpu == {}


def test_the_progress_of_an_ingest_is_that_of_the_task_which_makes_any() -> None:
    """The others wait for its data."""
    state = fold("r", [{"t": 0.0, "kind": "run", "tasks": ["worker-0"]}])
    for task in ("ingest-worker-1", "ingest-worker-0"):
        state.apply({"t": 1.0, "kind": "task", "task": task, "state": "started", "pid": 1})
    assert state.foremost is state.tasks["ingest-worker-1"]
    state.apply({"t": 2.0, "kind": "report", "task": "ingest-worker-0", "step": 5, "total": 9})
    assert state.foremost is state.tasks["ingest-worker-0"]
