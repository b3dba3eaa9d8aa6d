"""What the record says of the end of a generation and of a run. No process is involved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.conducted import SPEC, Conducted
from tests.support.conducted_messages import MESSAGES, clear, fields, halt, lose, stall

REASONS: dict[str, tuple[Callable[[Conducted], Any], bool, str]] = {
    "a failure": (MESSAGES["a trainer fails"], False, "exit code 1"),
    "a lost agent": (lose, False, "lost contact with machine-1 (closed), which hosted worker-1"),
    "a goodbye": (MESSAGES["an agent says goodbye"], True, "machine-1 left: bye"),
    "another agent": (
        MESSAGES["another takes its place"],
        False,
        "machine-1 was lost, which hosted worker-1; another has taken its place",
    ),
    "a stall": (stall, False, "no task reported a step for limits.stall (600 s)"),
    "chaos": (MESSAGES["the gang is preempted on purpose"], True, "chaos: preempted"),
    "a scaling": (MESSAGES["it is scaled down"], True, "scaled to 1 worker"),
}


@pytest.mark.parametrize("why", REASONS)
def test_a_restart_says_why(why: str) -> None:
    message, is_forgiven, reason = REASONS[why]
    run = Conducted().into("running")
    message(run)
    if "machine-1" in {agent.name for agent in run.machine.roster}:
        run.status("machine-1", cleared=1)
    run.status("machine-0", cleared=1)
    restart = fields(run, "restart")
    assert (restart["forgiven"], restart["reason"]) == (is_forgiven, reason)
    assert restart["left"] == 3 - (not is_forgiven)


def test_a_machine_that_leaves_at_a_step_is_forgiven() -> None:
    run = Conducted().into("running with gates")
    run.status("machine-1", leaving=True, ready=False)
    halt(run)
    clear(run)
    restart = fields(run, "restart")
    assert (restart["forgiven"], restart["reason"]) == (True, "machine-1 left: it was asked to leave")
    assert (run.phase, run.loop.expects("rendezvous")) == ("gathering", True)


def test_a_goodbye_while_clearing_forgives_an_end_without_another_reason() -> None:
    run = Conducted().into("clearing")
    run.conductor.leave(run.agents["machine-1"], "bye", for_good=True)
    run.status("machine-0", cleared=1)
    assert fields(run, "restart")["forgiven"]


def test_the_same_failure_twice_ends_the_run() -> None:
    run = Conducted().into("running")
    for number in (1, 2):
        run.outcome(
            "machine-1", "worker-1", 1, began=999.0, error={"type": "E", "message": "m", "where": "w"}
        )
        clear(run)
        run.tasks.clear()
        if number == 1:
            run.outcome("machine-0", "worker-0", None)
    end = fields(run, "end")
    assert (end["state"], end["code"], end["task"], end["reason"]) == ("failed", 1, "worker-1", "E: m")
    assert end["refusal"] == "it failed twice in the same way without a step in between"


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        ("the user stops", ("stopped", 130, "stopped by the user")),
        ("the machine has to leave", ("stopped", 143, "the machine asked it to leave (SIGTERM)")),
        ("limits.runtime passes", ("failed", 124, "limits.runtime of 3600 s is over")),
        (
            "limits.rendezvous passes",
            ("failed", 1, "after limits.rendezvous (300 s) there is still no machine for worker-1"),
        ),
    ],
)
def test_an_end_says_why(message: str, verdict: tuple[str, int, str]) -> None:
    run = Conducted().into("gathering")
    assert not run.machine.roster.informed
    MESSAGES[message](run)
    end = fields(run, "end")
    assert (end["state"], end["code"], end["reason"]) == verdict
    assert run.machine.code == verdict[1]
    assert run.machine.roster.informed == {"machine-0", "machine-1"}


def test_a_run_that_is_taken_up_after_its_verdict_keeps_it() -> None:
    run = Conducted()
    run.journal.end("failed", 7)
    run.conductor.give_up("")
    run.join("machine-1")
    assert (run.machine.code, run.sent) == (7, ["1:over,0,code=7"])
    begun = Conducted()
    begun.conductor.give_up("no disk")
    assert fields(begun, "end") == {"state": "failed", "code": 1, "reason": "no disk"}


def test_a_leader_that_is_replaced_gives_no_verdict() -> None:
    run = Conducted(replace(SPEC, is_replaced=True)).into("running")
    run.conductor.on_preempted()
    clear(run)
    assert (run.phase, run.machine.code, run.machine.is_moving) == ("over", 143, True)
    assert not run.journal.state.is_final
    done = Conducted(replace(SPEC, is_replaced=True)).into("running with gates")
    done.conductor.on_preempted()
    done.outcome("machine-0", "worker-0", 0)  # before it could halt
    clear(done)
    assert fields(done, "end")["state"] == "succeeded"
