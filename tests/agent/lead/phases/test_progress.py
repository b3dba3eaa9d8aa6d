"""What follows from a report: a stall deadline, and a restart budget that is refilled."""

from __future__ import annotations

import pytest

from tests.support.conducted import Conducted


@pytest.fixture
def run() -> Conducted:
    return Conducted().into("running")


def report(run: Conducted, step: int, **fields: object) -> None:
    run.event("machine-1", "report", task="worker-1", step=step, **fields)


@pytest.mark.parametrize(("source", "is_held_to_it"), [(None, True), ("keras", True), ("tqdm", False)])
def test_only_what_knows_its_step_can_stall(run: Conducted, source: str | None, is_held_to_it: bool) -> None:
    report(run, 3, **({} if source is None else {"observed": source}))
    assert run.loop.expects("stall") is is_held_to_it


def test_a_loop_that_has_ended_is_due_no_more_reports(run: Conducted) -> None:
    report(run, 3, observed="lightning", more=True)
    assert run.loop.expects("stall")
    report(run, 4, observed="lightning", more=False)
    assert not run.loop.expects("stall")


@pytest.mark.parametrize(("source", "progressed"), [("transformers", True), ("accelerate", False)])
def test_the_steps_of_a_loop_refill_the_restarts(run: Conducted, source: str, progressed: bool) -> None:
    report(run, 3, observed=source)
    assert run.machine.generation.progressed is progressed
    assert run.machine.progress.best_step == (3 if progressed else 0)


def test_a_failure_costs_double_only_where_the_program_reports_itself(run: Conducted) -> None:
    report(run, 3, observed="keras")
    assert not run.machine.progress.reports
    report(run, 4)
    assert run.machine.progress.reports


def test_a_run_without_signs_of_life_is_said_to_be_stuck_once(run: Conducted) -> None:
    run.event("machine-1", "alive")
    run.loop.passes("stuck")
    assert run.journal.state.is_stuck
    run.event("machine-0", "alive")
    assert run.journal.state.problem is None
    run.event("machine-1", "alive")
    assert [kind for kind, _ in run.journal.events].count("problem") == 2, "said, and taken back"
    assert run.phase == "running"


def test_a_program_that_reports_is_restarted_and_not_said_to_be_stuck(run: Conducted) -> None:
    run.event("machine-1", "alive")
    report(run, 3)
    run.loop.passes("stuck")
    assert not run.journal.state.is_stuck
