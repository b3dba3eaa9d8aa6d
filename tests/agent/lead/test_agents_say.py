"""What agents say, in more detail than the table of `test_conductor.py` shows: fields, repeats, deadlines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oarlock.agent.lead.phases.aftermath import Verdict
from oarlock.agent.protocol.gates import Whereabouts
from tests.support.conducted import Conducted
from tests.support.conducted_messages import MESSAGES, clear, fields

# Reports, and what a member may say


def test_a_step_that_was_not_reached_before_is_progress() -> None:
    run = Conducted().into("running")
    run.event("machine-1", "report", task="worker-1", step=3)
    assert (run.machine.generation.progressed, run.machine.progress.reports) == (True, True)
    run.machine.generation.progressed = False
    run.event("machine-1", "report", task="worker-1", step=3)
    assert not run.machine.generation.progressed
    assert [kind for kind, _ in run.journal.events] == ["report"]  # the second came too soon after it
    run.event("machine-1", "report", task="worker-1", step=3, last=True, loss=1)
    assert "last" not in run.journal.events[-1][1]


def test_an_event_of_a_machine_says_which_and_is_not_of_the_future() -> None:
    run = Conducted().into("running")
    run.event("machine-1", "ready", warm=True)
    run.conductor.hear_event(run.agents["machine-1"], {"kind": "note", "t": 5000.0, "text": "early"})
    assert fields(run, "ready")["on"] == "machine-1"
    assert run.journal.events[-1][1]["t"] == 1000.0


def test_an_agent_whose_place_another_has_taken_is_not_heard() -> None:
    run = Conducted().into("running")
    before = run.agents["machine-1"]
    run.join("machine-1", uid="other")
    run.sent.clear()
    assert before.status is not None
    run.conductor.hear(before, replace(before.status, leaving=True))
    run.conductor.hear_event(before, {"kind": "note", "t": 1.0, "text": "still here"})
    run.conductor.leave(before, "closed", for_good=True)
    assert run.summary() == "clearing |  | "


def test_a_member_that_speaks_for_anothers_task_is_noted_and_not_believed() -> None:
    run = Conducted().into("running")
    run.outcome("machine-1", "worker-0", 0)
    assert run.phase == "running"
    run.machine.dropped.flush()
    assert "machine-1: it spoke for a task that is not placed on it" in fields(run, "note")["text"]


def test_the_first_verdict_counts() -> None:
    run = Conducted().into("over")
    run.machine.end(Verdict("failed", 1, "again"))
    assert run.summary() == "over |  | "


# What must not outlive a phase, and what must


@pytest.mark.parametrize("message", ["a trainer fails", "the leader task ends with 0", "the user stops"])
@pytest.mark.parametrize("phase", ["running with gates", "halting to stop"])
def test_no_deadline_of_a_phase_is_left_in_the_next(phase: str, message: str) -> None:
    run = Conducted().into("running with gates")
    run.event("machine-1", "report", task="worker-1", step=3)
    if phase == "halting to stop":
        run.conductor.on_user_stop()
        assert not run.loop.expects("stall")
    MESSAGES[message](run)
    assert not run.loop.expects("stall")
    assert run.loop.expects("halt") == (run.phase == "halting")


def test_trainers_that_wait_for_a_decision_are_released_when_their_generation_ends() -> None:
    run = Conducted().into("running with gates")
    run.gates["worker-0"] = Whereabouts(1, asks=1)
    run.outcome("machine-0", "worker-0", None)
    run.outcome("machine-1", "worker-1", 1)
    assert run.sent == [
        "0:where,1,1",
        "1:where,1,1",
        "0:carry-on,1,1",
        "1:carry-on,1,1",
        "0:clear,1",
        "1:clear,1",
    ]


def test_the_grace_of_an_earlier_halt_is_not_that_of_a_later_stop() -> None:
    run = Conducted().into("halting to reform")
    run.loop.passes("halt")
    run.tasks.clear()
    run.gates.clear()
    clear(run)
    run.conductor.on_user_stop()
    assert run.sent[-1] == "1:stop,2,grace=30"


def test_a_gang_of_which_nothing_is_left_forms_again_at_once() -> None:
    run = Conducted().into("running")
    clear(run)
    run.machine.reform("chaos: preempted")
    assert run.summary() == "running | *:clear,1 *:run,2 | restart:3:True generation:2"


def test_a_verdict_that_is_repeated_is_the_last() -> None:
    run = Conducted()
    run.machine.repeat_verdict(7)
    assert (run.phase, run.machine.code) == ("over", 7)


def test_what_is_told_while_clearing_may_name_the_culprit() -> None:
    run = Conducted().into("running")
    run.outcome("machine-1", "worker-1", 134, signal=6)
    run.outcome("machine-0", "worker-0", 137, signal=9)
    clear(run)
    assert fields(run, "restart")["task"] == "worker-0"


def test_an_agent_that_reconnects_in_time_is_not_lost() -> None:
    run = Conducted().into("running")
    run.conductor.leave(run.agents["machine-1"], "closed")
    assert run.loop.expects("loss of machine-1")
    run.join("machine-1")
    assert not run.loop.expects("loss of machine-1")


def test_no_agent_is_waited_for_once_the_run_is_over() -> None:
    run = Conducted().into("over")
    run.conductor.leave(run.agents["machine-1"], "closed")
    assert not run.loop.expects("loss of machine-1")


def test_folders_that_the_leader_task_has_made_are_told_to_all_and_again_after_a_cut() -> None:
    run = Conducted().into("running")
    run.status("machine-1", made=frozenset({"2" * 16}))  # which does not host the leader task
    assert run.sent == []
    run.status("machine-0", made=frozenset({"1" * 16}))
    run.status("machine-0", made=frozenset({"1" * 16}))
    run.join("machine-1")
    assert run.summary() == "running | *:made,1 1:run,1 1:made,1 | "
    run.outcome("machine-1", "worker-1", 1)
    clear(run)
    run.sent.clear()
    run.join("machine-1")
    assert run.sent == ["1:run,2"]
