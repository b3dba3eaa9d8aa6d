"""What `oarlock chaos` draws, and what it reads from a run's events: both are functions of their input."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import pytest

from oarlock.cli.chaos_run import chaos_report, faults_drawn
from oarlock.cli.chaos_run.faults_drawn import KINDS, Draw, InflictedFault, Report, View, draws

KILLED = "chaos: killed worker-1"


def first(count: int, seed: int = 7, kinds: Any = KINDS, every: float = 10.0) -> list[Draw]:
    return list(islice(draws(seed, kinds, every), count))


def test_the_same_seed_gives_the_same_faults() -> None:
    assert first(50) == first(50)
    assert first(50) != first(50, seed=8)


def test_every_kind_is_drawn_about_as_often() -> None:
    counted = Counter(draw.kind for draw in first(3000))
    assert set(counted) == set(KINDS)
    assert all(900 < count < 1100 for count in counted.values())


def test_the_run_is_left_alone_for_a_half_to_one_and_a_half_of_the_mean() -> None:
    waits = [draw.wait for draw in first(2000)]
    assert 5.0 <= min(waits) < 5.1
    assert 14.9 < max(waits) < 15.0
    assert 9.7 < sum(waits) / len(waits) < 10.3


def test_everybody_is_hit_and_another_task_changes_only_who() -> None:
    two, three = (
        [draw.of([f"worker-{index}" for index in range(count)]) for draw in first(300)] for count in (2, 3)
    )
    assert set(two) == {"worker-0", "worker-1"}
    assert set(three) == {"worker-0", "worker-1", "worker-2"}
    assert Draw("kill", 0, 0.0).of(["a", "b"]) == "a"
    assert Draw("kill", 0, 0.999).of(["a", "b"]) == "b"


class Run:
    """A run of two workers whose events a test writes."""

    def __init__(self, step: int | None = 412) -> None:
        self.view = View("run")
        self.fault: InflictedFault | None = None
        self.tell("run", 0, tasks=["worker-0", "worker-1"])
        self.tell("agent", 0)
        self.form(1, 1)
        if step is not None:
            self.step(9, step, "worker-1")
            self.step(9, step)

    def tell(self, kind: str, t: float, **fields: Any) -> Run:
        event = {"kind": kind, "t": t, **fields}
        self.view.apply(event)
        if self.fault is not None:
            self.fault.hear(event)
        return self

    def form(self, generation: int, t: float) -> Run:
        self.tell("generation", t, generation=generation, tasks=["worker-0", "worker-1"])
        self.tell("task", t + 0.1, task="worker-0", state="started", pid=1)
        return self.tell("task", t + 0.2, task="worker-1", state="started", pid=2)

    def step(self, t: float, step: int, task: str = "worker-0") -> Run:
        return self.tell("report", t, task=task, step=step)

    def ended(self, t: float, task: str, code: int = 137) -> Run:
        return self.tell("task", t, task=task, state="ended", code=code, ours=code != 137)

    def inflict(
        self, kind: str, target: str = "worker-1", note: str = KILLED, pause: float = 5.0
    ) -> InflictedFault:
        """At 10 s."""
        self.fault = fault = InflictedFault.upon(self.view, kind, target, pause)
        fault.note = note
        self.tell("note", 10.0, text=note)
        return fault


def test_a_killed_task_has_recovered_with_the_leaders_first_step_in_the_next_generation() -> None:
    run = Run()
    fault = run.inflict("kill")
    run.ended(10.01, "worker-1").step(9.99, 412).ended(10.02, "worker-0")
    run.tell("restart", 10.05, task="worker-1", reason="killed by SIGKILL", left=2).form(2, 10.1)
    run.step(10.4, 401, "worker-1")
    assert not fault.is_recovered
    run.step(10.5, 401).step(11, 410)
    assert (fault.seconds, fault.resumed, fault.repeated) == (0.5, 401, 12)
    line = chaos_report.beginning(12.34, fault) + chaos_report.outcome(fault)
    assert (
        line == "  12.3s  kill worker-1 at step 412: resumed at step 401 after 0.50s, repeated about 12 steps"
    )


def test_the_last_step_of_the_dead_is_told_after_their_death() -> None:
    """Reports are thinned: the leader's last one comes with its exit."""
    run = Run(step=400)
    fault = run.inflict("kill")
    run.step(10.0, 412).ended(10.02, "worker-0").form(2, 10.1).step(10.5, 401)
    assert (fault.step, fault.repeated) == (412, 12)


@pytest.mark.parametrize(
    ("rate", "code", "is_about"), [(2.0, 137, False), (50.0, 137, True), (50, 143, False)]
)
def test_only_of_fast_steps_that_were_cut_the_last_one_is_not_known(
    rate: float, code: int, is_about: bool
) -> None:
    run = Run()
    assert run.view.state.leader
    run.view.state.leader.rate = rate
    fault = run.inflict("kill")
    run.ended(10.02, "worker-0", code).form(2, 10.1).step(10.5, 413)
    assert fault.is_about is is_about
    assert chaos_report.outcome(fault).endswith("after 0.50s, repeated no step")


def test_a_preempted_gang_goes_on_with_the_next_step() -> None:
    run = Run()
    fault = run.inflict("preempt", "the gang", "chaos: preempted the gang")
    run.step(10.2, 415).ended(10.3, "worker-0", 143).form(2, 10.4).step(10.6, 416)
    assert (fault.step, fault.resumed, fault.repeated, fault.is_about) == (415, 416, 0, False)
    assert chaos_report.outcome(fault) == " at step 415: resumed at step 416 after 0.60s, repeated no step"


def test_a_pause_is_over_with_the_next_step_of_who_was_paused() -> None:
    """Time counts from when it was continued; what the others do meanwhile proves nothing."""
    run = Run()
    fault = run.inflict("pause", note="chaos: paused worker-1 for 5 s")
    run.step(10.1, 413).step(10.0, 412, "worker-1")
    run.tell("note", 15.0, text="chaos: continued worker-1").step(15.1, 520)
    assert not fault.is_recovered
    run.step(15.25, 413, "worker-1")
    assert (fault.seconds, fault.resumed, fault.repeated) == (0.25, 413, 0)
    assert chaos_report.outcome(fault) == ": resumed at step 413 after 0.25s"


def test_a_pause_that_ended_the_generation_is_over_with_the_next_one() -> None:
    run = Run()
    fault = run.inflict("pause")
    run.ended(13, "worker-0").form(2, 13.5).step(14, 401)
    assert (fault.seconds, fault.repeated) == (4, 12)


def test_a_program_that_does_not_report_has_recovered_when_all_run_again() -> None:
    run = Run(step=None)
    fault = run.inflict("kill")
    run.ended(10.1, "worker-1").tell("generation", 10.2, generation=2, tasks=["worker-0", "worker-1"])
    run.tell("task", 10.3, task="worker-0", state="started")
    assert not fault.is_recovered
    run.tell("task", 10.5, task="worker-1", state="started")
    assert (fault.seconds, fault.resumed) == (0.5, None)
    assert chaos_report.outcome(fault) == ": resumed after 0.50s"


def test_a_silent_program_goes_on_when_it_is_continued() -> None:
    run = Run(step=None)
    fault = run.inflict("pause")
    run.tell("note", 15.01, text="chaos: continued worker-0")
    assert not fault.is_recovered
    run.tell("note", 15.01, text="chaos: continued worker-1")
    assert fault.seconds == pytest.approx(0.01)


def test_a_task_that_starts_again_alone_has_recovered_with_its_own_step() -> None:
    run = Run()
    fault = run.inflict("kill")
    run.ended(10.1, "worker-1").tell("restart", 10.2, task="worker-1", alone=True, left=1)
    run.step(10.3, 440).tell("task", 10.4, task="worker-1", state="started")
    assert not fault.is_recovered
    run.step(10.7, 390, "worker-1")
    assert fault.seconds == pytest.approx(0.7)
    assert fault.repeated == 0


def test_nothing_before_its_note_is_taken_for_recovery() -> None:
    run = Run()
    fault = run.fault = InflictedFault.upon(run.view, "kill", "worker-1", 0)
    fault.note = KILLED
    run.step(9.9, 415)
    assert (fault.step, fault.is_recovered) == (415, False)


def test_a_run_is_steady_when_all_run_and_the_leader_steps() -> None:
    run = Run()
    assert run.view.is_steady
    run.ended(10, "worker-1")
    run.tell("restart", 10.1, task="worker-1", left=1)
    assert not run.view.is_steady
    run.form(2, 11)
    assert not run.view.is_steady
    assert run.step(12, 401, "worker-1").view.is_steady is False
    assert run.step(12, 401).view.is_steady
    assert Run(step=None).view.is_steady
    assert not View("new").is_steady


def test_the_spread_of_times() -> None:
    assert faults_drawn.spread([]) == {"median": None, "p99": None, "max": None}
    assert faults_drawn.spread([3.0, 1.0, 2.0]) == {"median": 2.0, "p99": 3.0, "max": 3.0}
    assert faults_drawn.spread([float(one) for one in range(1, 201)]) == {
        "median": 100.5,
        "p99": 198,
        "max": 200,
    }


def test_goodput_is_of_the_time_since_it_began() -> None:
    run = Run()
    before = run.view.state.accounts.at()
    run.inflict("kill")
    run.ended(10, "worker-1").ended(10, "worker-0").tell("restart", 10, task="worker-1", left=1)
    run.form(2, 11).step(12, 413).step(19, 500)
    assert faults_drawn.goodput(before, run.view.state.accounts) == pytest.approx(7 / 10)
    silent = Run(step=None).view.state.accounts
    assert faults_drawn.goodput(silent.at(), silent) is None


def test_the_summary() -> None:
    run = Run()
    fault = run.inflict("kill")
    run.ended(10.02, "worker-0").form(2, 10.1).step(10.5, 401)
    failed = InflictedFault("kill", "worker-0", 2, "worker-0", problem="the run failed: limits.restarts is 0")
    report = Report("run", 7, KINDS, [fault, failed], state="failed", generations=1, goodput=0.914)
    assert chaos_report.summary(report) == [
        "faults           2, 1 recovered",
        "time to recover  median 0.50s, p99 0.50s, max 0.50s",
        "steps repeated   about 12",
        "goodput          91%",
        "generations      1",
        "seed             7",
        "run              failed",
    ]
    assert report.failed == [failed]
    assert chaos_report.outcome(failed) == ": the run failed: limits.restarts is 0"
