"""Reports that hooks saw: what follows from them, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock.run.observed import COUNTERS, LOOPS, knows_its_step
from oarlock.run.run_state import RunState, fold

RUN = [
    {"t": 0.0, "kind": "run", "job": "j", "engine": "local", "tasks": ["worker-0"]},
    {"t": 0.0, "kind": "generation", "generation": 1, "tasks": ["worker-0"]},
    {"t": 1.0, "kind": "task", "task": "worker-0", "state": "started", "pid": 1},
]


def after(*reports: dict[str, Any]) -> RunState:
    told = [
        {"t": 2.0 + number, "kind": "report", "task": "worker-0", **report}
        for number, report in enumerate(reports)
    ]
    return fold("r", [*RUN, *told])


def test_only_what_knows_its_step_counts() -> None:
    assert knows_its_step(None)
    assert all(map(knows_its_step, LOOPS))
    assert not any(map(knows_its_step, [*COUNTERS, "of a later version"]))


@pytest.mark.parametrize("source", ["keras", "tqdm"])
def test_step_rate_and_eta_are_shown_whoever_saw_them(source: str) -> None:
    task = after(
        {"step": 10, "total": 40, "observed": source}, {"step": 20, "total": 40, "observed": source}
    ).tasks["worker-0"]
    assert (task.step, task.rate, task.eta) == (20, 10, 2)
    assert task.observed == source
    assert task.metrics == {}


def test_another_source_begins_anew_because_it_counts_other_steps() -> None:
    bar = {"step": 5000, "total": 9000, "loss": 3.0, "observed": "tqdm"}
    task = after(bar, {"step": 7}).tasks["worker-0"]
    assert (task.step, task.total, task.rate, task.metrics) == (7, None, None, {})
    task = after(bar, {"step": 3, "total": 4, "observed": "tqdm"}).tasks["worker-0"]  # the next bar
    assert (task.step, task.total, task.rate) == (3, 4, None)


def test_a_counter_says_nothing_about_where_the_time_went() -> None:
    assert after({"step": 5000, "observed": "tqdm"}).accounts.reports is False
    assert after({"step": 3, "observed": "keras"}).accounts.reports is True


def test_a_warning_is_kept_once_with_what_to_do_about_it() -> None:
    warning = {"t": 3.0, "kind": "warning", "task": "worker-0", "text": "each trains alone", "fix": "join"}
    state = fold("r", [*RUN, warning, warning, {"t": 4.0, "kind": "end", "state": "succeeded", "code": 0}])
    assert state.warnings == ["each trains alone; join"]
