"""An evaluator as the leading agent sees it: its scores, its restarts, and the wait for its last score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oarlock.agent.lead.phases.scoring import EVALUATE
from oarlock.agent.protocol.wishes import RunTasks
from tests.support.conducted import SPEC, Conducted

ONE, TWO = "step-0000000010-g1", "step-0000000020-g1"
TRAINED = replace(SPEC, sizes={"worker": 1, "evaluator": 1}, limits=replace(SPEC.limits, restarts=1))


def score(step: int, t: float = 1000.0, **metrics: Any) -> dict[str, Any]:
    return {"t": t, "kind": "report", "task": "evaluator-0", "step": step, "generation": 1, **metrics}


def running(follows: bool = True) -> Conducted:
    """worker-0 on machine-0, and evaluator-0 alone on machine-1."""
    run = Conducted(TRAINED)
    for name, slots in (("machine-0", {"worker": 1}), ("machine-1", {"evaluator": 1})):
        run.join(name)
        run.status(name, slots=slots)
    run.outcome("machine-0", "worker-0", None)
    run.outcome("machine-1", "evaluator-0", None, follows=follows)
    run.leader.checkpoints.held = [TWO, ONE]
    run.sent.clear()
    run.journal.events.clear()
    return run


def scoring() -> Conducted:
    run = running()
    run.outcome("machine-0", "worker-0", 0)
    assert run.phase == "scoring"
    return run


def notes(run: Conducted) -> list[str]:
    return [fields["text"] for kind, fields in run.journal.events if kind == "note"]


def wish(run: Conducted) -> RunTasks:
    assert isinstance(run.machine.roster.wish, RunTasks)
    return run.machine.roster.wish


def test_a_score_is_recorded_once_however_often_a_status_repeats_it() -> None:
    run = running()
    for _ in range(2):
        run.outcome("machine-1", "evaluator-0", None, follows=True, scores=(score(10, accuracy=0.5),))
    again = score(10, t=1001.0, accuracy=0.75)  # after a restart
    run.outcome("machine-1", "evaluator-0", None, follows=True, scores=(score(10, accuracy=0.5), again))
    reports = [fields for kind, fields in run.journal.events if kind == "report"]
    assert [report["accuracy"] for report in reports] == [0.5, 0.75]
    assert run.leader.checkpoints.scores == {ONE: {"accuracy": 0.75}}
    assert run.leader.checkpoints.is_followed


def test_an_evaluator_that_starts_again_knows_what_is_scored_and_no_save_is_disturbed() -> None:
    run = running()
    fences = list(run.leader.fences)
    run.outcome("machine-1", "evaluator-0", None, follows=True, scores=(score(10, accuracy=0.5),))
    run.outcome("machine-1", "evaluator-0", 1, signal=9, follows=True, scores=(score(10, accuracy=0.5),))
    assert (run.phase, wish(run).launches) == ("running", {"evaluator-0": 2})
    assert list(wish(run).gang.scored) == [ONE]
    assert run.leader.fences == fences  # to take over would remove what the trainer is writing


def test_its_own_scores_fill_its_budget_and_the_training_s_steps_do_not() -> None:
    run = running()
    for launch in range(1, 6):  # restarts is 1
        run.outcome("machine-1", "evaluator-0", 1, signal=9, launch=launch, scores=(score(launch),))
    run.event("machine-0", "report", task="worker-0", step=500)
    run.outcome("machine-1", "evaluator-0", 1, signal=9, launch=6)
    assert "evaluator-0 is not restarted" in notes(run)[-1]
    assert run.phase == "running"
    assert not run.leader.checkpoints.is_followed


def test_the_run_waits_for_the_last_score() -> None:
    run = scoring()
    assert notes(run) == ["waiting for evaluator-0 to score step 20"]
    assert wish(run).is_done
    run.outcome("machine-1", "evaluator-0", None, follows=True, scores=(score(20, loss=1.0),))
    assert run.phase == "scoring"
    run.outcome("machine-1", "evaluator-0", 0, follows=True, scores=(score(20, loss=1.0),))
    assert run.phase == "finishing"
    for name in ("machine-0", "machine-1"):
        run.status(name, cleared=1)
    assert run.journal.events[-1] == ("end", {"state": "succeeded", "code": 0})


def test_an_evaluator_that_has_ended_is_not_awaited_again_when_its_status_repeats() -> None:
    run = scoring()
    for cleared in (0, 1):
        run.outcome("machine-1", "evaluator-0", 0, follows=True, scores=(score(20, loss=1.0),))
        run.status("machine-1", cleared=cleared)
    assert run.phase == "finishing"
    assert not run.loop.expects(EVALUATE), "it would end a run that is over once more"
    assert not run.leader.checkpoints.is_followed


def test_it_says_nothing_where_the_last_checkpoint_is_scored() -> None:
    run = running()
    run.leader.checkpoints.scores = {TWO: {}}
    run.outcome("machine-0", "worker-0", 0)
    assert (run.phase, notes(run)) == ("scoring", [])


def test_an_evaluator_that_dies_over_the_last_score_starts_again() -> None:
    run = scoring()
    run.outcome("machine-1", "evaluator-0", 1, signal=9, follows=True)
    assert (run.phase, wish(run).launches, wish(run).is_done) == ("scoring", {"evaluator-0": 2}, True)
    run.outcome("machine-1", "evaluator-0", 1, signal=9, launch=2)
    assert run.phase == "finishing"  # its budget is used up
    assert run.machine.stopped is None


def test_the_wait_for_the_last_score_has_a_limit() -> None:
    run = scoring()
    assert run.loop.deadlines[EVALUATE][0] == TRAINED.limits.evaluate
    run.loop.passes(EVALUATE)
    assert (run.phase, run.sent[-1]) == ("finishing", "1:stop,1")
    assert notes(run)[-1] == (
        "evaluator-0 did not score step 20 within limits.evaluate (600 s); `oarlock evaluate r@20` does"
    )


def test_an_evaluator_that_does_not_follow_has_the_grace_and_more_once_it_does() -> None:
    run = running(follows=False)
    run.outcome("machine-0", "worker-0", 0)
    assert (run.phase, notes(run)) == ("scoring", [])
    assert run.loop.deadlines[EVALUATE][0] == TRAINED.limits.grace
    run.outcome("machine-1", "evaluator-0", None, follows=True)
    assert notes(run) == ["waiting for evaluator-0 to score step 20"]
    assert run.loop.deadlines[EVALUATE][0] == TRAINED.limits.evaluate


def test_a_user_who_stops_the_wait_has_a_run_that_succeeded() -> None:
    run = scoring()
    run.conductor.on_user_stop()
    assert run.phase == "stopping"
    for name in ("machine-0", "machine-1"):
        run.status(name, cleared=1)
    assert run.journal.events[-1][1]["state"] == "succeeded"


def test_training_continues_when_the_evaluator_s_machine_is_lost_leaves_or_comes_back() -> None:
    run = running()
    run.conductor.leave(run.agents["machine-1"], "cut", for_good=True)
    assert (run.phase, notes(run)) == ("running", ["machine-1 is gone (cut); training continues without it"])
    run.join("machine-1", uid="another")
    assert (run.phase, run.sent) == ("running", ["1:run,1"])
    run.status("machine-1", slots={"evaluator": 1}, leaving=True)
    assert (run.phase, run.sent[-1]) == ("running", "1:part,1")
