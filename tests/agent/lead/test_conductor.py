"""The conductor as tables: in this phase, after this message, these wishes, these events and that phase.

No process, no socket and no time is involved. A cell reads `phase | wishes | events`: `*:` went to both
machines, `1:` to machine-1 only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oarlock.agent.lead.phases.aftermath import Verdict
from oarlock.agent.lead.phases.phase_table import TRANSITIONS
from oarlock.agent.protocol.gates import Whereabouts
from tests.support.conducted import Conducted
from tests.support.conducted_messages import MESSAGES, clear, fields

PHASES = [
    "gathering",
    "running",
    "running with gates",
    "halting to stop",
    "halting to reform",
    "clearing",
    "finishing",
    "stopping",
    "over",
]


# Where a phase is not named, nothing is sent, nothing is recorded and the phase stays.
TABLE: dict[str, dict[str, str]] = {
    "a spare machine joins": {
        "gathering": "running | 2:clear,0 *:run,1 2:run,1 | generation:1",
        "running": "running | 2:run,1 |",
        "running with gates": "running | 2:run,1 |",
        "halting to stop": "halting | 2:halt,1 2:where,1,1 |",
        "halting to reform": "halting | 2:halt,1 2:where,1,1 |",
        "clearing": "clearing | 2:clear,1 |",
        "finishing": "finishing | 2:finish,1 |",
        "stopping": "stopping | 2:stop,1,grace=30 |",
        "over": "over | 2:over,1,code=130 |",
    },
    "an agent reconnects": {
        "gathering": "gathering | 1:clear,0 |",
        "running": "running | 1:run,1 |",
        "running with gates": "running | 1:run,1 |",
        "halting to stop": "halting | 1:halt,1 1:where,1,1 |",
        "halting to reform": "halting | 1:halt,1 1:where,1,1 |",
        "clearing": "clearing | 1:clear,1 |",
        "finishing": "finishing | 1:finish,1 |",
        "stopping": "stopping | 1:stop,1,grace=30 |",
        "over": "over | 1:over,1,code=130 |",
    },
    "another takes its place": {
        "gathering": "gathering | 1:over,0,code=143,replaced 1:clear,0 |",
        "running": "clearing | 1:over,1,code=143,replaced *:clear,1 1:clear,1 |",
        "running with gates": "clearing | 1:over,1,code=143,replaced *:clear,1 1:clear,1 |",
        "halting to stop": "stopping | 1:over,1,code=143,replaced *:carry-on,1,1 *:stop,1,grace=30"
        " 1:stop,1,grace=30 |",
        "halting to reform": "clearing | 1:over,1,code=143,replaced *:carry-on,1,1 *:clear,1 1:clear,1 |",
        "clearing": "clearing | 1:over,1,code=143,replaced 1:clear,1 |",
        "finishing": "finishing | 1:over,1,code=143,replaced 1:finish,1 |",
        "stopping": "stopping | 1:over,1,code=143,replaced 1:stop,1,grace=30 |",
        "over": "over | 1:over,1,code=143,replaced 1:over,1,code=130 |",
    },
    "a machine that was given up joins": {},
    "an agent joins under the leader's name": {},
    "the awaited machine is ready": {
        "gathering": "running | *:run,1 | generation:1",
    },
    "a trainer fails": {
        "running": "clearing | *:clear,1 |",
        "running with gates": "clearing | *:clear,1 |",
        "halting to stop": "stopping | *:carry-on,1,1 *:stop,1,grace=30 |",
        "halting to reform": "clearing | *:carry-on,1,1 *:clear,1 |",
    },
    "a trainer is ended by its host": {
        "running": "clearing | *:clear,1 |",
        "running with gates": "clearing | *:clear,1 |",
    },
    "a trainer ends with 0": {},
    "the leader task ends with 0": {
        "running": "finishing | *:finish,1 |",
        "running with gates": "finishing | *:finish,1 |",
        "halting to stop": "finishing | *:carry-on,1,1 *:finish,1 |",
        "halting to reform": "finishing | *:carry-on,1,1 *:finish,1 |",
    },
    "both trainers halt": {
        "running": "clearing | *:clear,1 |",
        "running with gates": "clearing | *:clear,1 |",
        "halting to stop": "stopping | *:carry-on,1,1 *:stop,1,grace=30 |",
        "halting to reform": "clearing | *:carry-on,1,1 *:clear,1 |",
    },
    "one machine has cleared": {},
    "all machines have cleared": {
        "clearing": "running | *:run,2 | restart:2:False generation:2",
        "finishing": "over | *:over,1 | end:succeeded:0",
        "stopping": "over | *:over,1,code=130 | end:stopped:130",
    },
    "a machine is asked to leave": {
        "gathering": "gathering | 1:part,0 |",
        "running": "running | 1:part,1 |",
        "running with gates": "halting | *:halt,1 *:where,1,1 |",
        "clearing": "clearing | 1:part,1 |",
        "finishing": "finishing | 1:part,1 |",
        "stopping": "stopping | 1:part,1 |",
        "over": "over | 1:part,1 |",
    },
    "a connection is cut": {},
    "an agent is lost": {
        "running": "clearing | 0:clear,1 |",
        "running with gates": "clearing | 0:clear,1 |",
        "halting to stop": "stopping | 0:carry-on,1,1 0:stop,1,grace=18 |",
        "halting to reform": "clearing | 0:carry-on,1,1 0:clear,1 |",
    },
    "an agent says goodbye": {
        "running": "clearing | 0:clear,1 |",
        "running with gates": "clearing | 0:clear,1 |",
        "halting to stop": "stopping | 0:carry-on,1,1 0:stop,1,grace=30 |",
        "halting to reform": "clearing | 0:carry-on,1,1 0:clear,1 |",
    },
    "a step is reported": {
        "running": "running |  | report",
        "running with gates": "running |  | report",
        "halting to stop": "halting |  | report",
        "halting to reform": "halting |  | report",
        "clearing": "clearing |  | report",
        "finishing": "finishing |  | report",
        "stopping": "stopping |  | report",
        "over": "over |  | report",
    },
    "a machine can run no tasks": {
        "gathering": "over | *:over,0,code=1 | end:failed:1",
        "running": "running |  | note",
        "running with gates": "running |  | note",
        "halting to stop": "halting |  | note",
        "halting to reform": "halting |  | note",
        "clearing": "over | *:over,1,code=1 | end:failed:1",
        "finishing": "finishing |  | note",
        "stopping": "stopping |  | note",
        "over": "over |  | note",
    },
    "an agent notes something": {
        "gathering": "gathering |  | note",
        "running": "running |  | note",
        "running with gates": "running |  | note",
        "halting to stop": "halting |  | note",
        "halting to reform": "halting |  | note",
        "clearing": "clearing |  | note",
        "finishing": "finishing |  | note",
        "stopping": "stopping |  | note",
        "over": "over |  | note",
    },
    "an agent speaks for another's task": {},
    "the user stops": {
        "gathering": "over | *:stop,0,grace=30 *:over,0,code=130 | stop end:stopped:130",
        "running": "stopping | *:stop,1,grace=30 | stop",
        "running with gates": "halting | *:halt,1 *:where,1,1 | stop",
        "halting to stop": "stopping | *:carry-on,1,1 *:stop,1,now |",
        "halting to reform": "halting |  | stop",
        "clearing": "stopping | *:stop,1,grace=30 | stop",
        "finishing": "stopping | *:stop,1,grace=30 | stop",
        "stopping": "stopping | *:stop,1,now |",
    },
    "the user stops twice": {
        "gathering": "over | *:stop,0,grace=30 *:over,0,code=130 | stop end:stopped:130",
        "running": "stopping | *:stop,1,grace=30 *:stop,1,now | stop",
        "running with gates": "stopping | *:halt,1 *:where,1,1 *:carry-on,1,1 *:stop,1,now | stop",
        "halting to stop": "stopping | *:carry-on,1,1 *:stop,1,now *:stop,1,now |",
        "halting to reform": "stopping | *:carry-on,1,1 *:stop,1,now | stop",
        "clearing": "stopping | *:stop,1,grace=30 *:stop,1,now | stop",
        "finishing": "stopping | *:stop,1,grace=30 *:stop,1,now | stop",
        "stopping": "stopping | *:stop,1,now *:stop,1,now |",
    },
    "the machine has to leave": {
        "gathering": "over | *:stop,0,grace=30 *:over,0,code=143 | stop end:stopped:143",
        "running": "stopping | *:stop,1,grace=30 | stop",
        "running with gates": "halting | *:halt,1 *:where,1,1 | stop",
        "halting to reform": "halting |  | stop",
        "clearing": "stopping | *:stop,1,grace=30 | stop",
        "finishing": "stopping | *:stop,1,grace=30 | stop",
    },
    "the machine has to leave at once": {
        "gathering": "over | *:stop,0,grace=30 *:over,0,code=143 | stop end:stopped:143",
        "running": "stopping | *:stop,1,grace=30 *:stop,1,now | stop",
        "running with gates": "stopping | *:halt,1 *:where,1,1 *:carry-on,1,1 *:stop,1,now | stop",
        "halting to stop": "stopping | *:carry-on,1,1 *:stop,1,now |",
        "halting to reform": "stopping | *:carry-on,1,1 *:stop,1,now | stop",
        "clearing": "stopping | *:stop,1,grace=30 *:stop,1,now | stop",
        "finishing": "stopping | *:stop,1,grace=30 *:stop,1,now | stop",
        "stopping": "stopping | *:stop,1,now |",
    },
    "it is scaled down": {
        "gathering": "running | *:clear,0,want=1 *:run,1 | scale generation:1",
        "running": "clearing | *:clear,1,want=1 | scale",
        "running with gates": "halting | *:halt,1 *:where,1,1 | scale",
        "halting to reform": "halting | *:halt,1,want=1 | scale",
        "clearing": "clearing | *:clear,1,want=1 | scale",
    },
    "stacks are requested": {
        "gathering": "gathering | *:stacks,0 |",
        "running": "running | *:stacks,1 |",
        "running with gates": "running | *:stacks,1 |",
        "halting to stop": "halting | *:stacks,1 |",
        "halting to reform": "halting | *:stacks,1 |",
        "clearing": "clearing | *:stacks,1 |",
        "finishing": "finishing | *:stacks,1 |",
        "stopping": "stopping | *:stacks,1 |",
        "over": "over | *:stacks,1 |",
    },
    "a task is killed on purpose": {
        "running": "running | 1:fault,1,fault=kill | note",
        "running with gates": "running | 1:fault,1,fault=kill | note",
    },
    "the gang is preempted on purpose": {
        "running": "clearing | *:clear,1 | note",
        "running with gates": "halting | *:halt,1 *:where,1,1 | note",
    },
    "limits.runtime passes": {
        "gathering": "over | *:stop,0,grace=30 *:over,0,code=124 | stop end:failed:124",
        "running": "stopping | *:stop,1,grace=30 | stop",
        "running with gates": "halting | *:halt,1 *:where,1,1 | stop",
        "halting to reform": "halting |  | stop",
        "clearing": "stopping | *:stop,1,grace=30 | stop",
        "finishing": "stopping | *:stop,1,grace=30 | stop",
    },
    "limits.rendezvous passes": {
        "gathering": "over | *:over,0,code=1 | end:failed:1",
    },
    "no more steps are reported": {
        "running": "clearing | *:clear,1,stacks | report",
        "running with gates": "clearing | *:clear,1,stacks | report",
        "halting to stop": "halting |  | report",
        "halting to reform": "halting |  | report",
        "clearing": "clearing |  | report",
        "finishing": "finishing |  | report",
        "stopping": "stopping |  | report",
        "over": "over |  | report",
    },
    "the grace of a halt passes": {
        "halting to stop": "stopping | *:carry-on,1,1 *:stop,1,now |",
        "halting to reform": "clearing | *:carry-on,1,1 *:clear,1 |",
    },
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_in_a_phase(message: str, phase: str) -> None:
    run = Conducted().into(phase)
    MESSAGES[message](run)
    unchanged = f"{phase.split()[0]} |  |"
    assert run.summary().rstrip() == TABLE[message].get(phase, unchanged)


def test_the_table_names_phases_and_messages_that_exist() -> None:
    assert list(TABLE) == list(MESSAGES)
    assert {phase for row in TABLE.values() for phase in row} == set(PHASES)


@pytest.mark.parametrize("phase", TRANSITIONS)
def test_a_phase_is_followed_only_by_those_that_the_table_of_transitions_names(phase: Any) -> None:
    for following in TRANSITIONS:
        run = Conducted()
        run.machine.phase = phase
        if following in TRANSITIONS[phase]:
            run.machine._enter(following)
            assert run.phase == following
        else:
            with pytest.raises(RuntimeError, match=f"a run that is {phase} cannot be {following} next"):
                run.machine._enter(following)


def test_every_transition_is_in_the_table_but_those_that_are_passed_through_or_rare() -> None:
    """A machine can run no tasks while its gang runs: the task has ended, and the run has not heard of it."""
    seen = {(phase.split()[0], cell.split()[0]) for row in TABLE.values() for phase, cell in row.items()}
    legal = {(phase, following) for phase in TRANSITIONS for following in TRANSITIONS[phase]}
    passed_through = {("clearing", "gathering"), ("gathering", "stopping")}
    races = {("running", "over"), ("halting", "over")}
    scored = {("running", "scoring"), ("scoring", "finishing"), ("scoring", "stopping")}  # test_scoring.py
    assert legal - seen == passed_through | races | scored


@pytest.mark.parametrize("phase", ["running", "running with gates"])
def test_a_machine_that_can_run_no_tasks_ends_the_run_that_waits_for_it(phase: str) -> None:
    run = Conducted().into(phase)
    run.status("machine-1", tasks=())
    run.event("machine-1", "never_ready", text="no room")
    assert run.summary() == "over | *:over,1,code=1 | end:failed:1"
    halting = Conducted().into("halting to stop")
    halting.status("machine-1", tasks=())
    halting.event("machine-1", "never_ready", text="no room")
    assert halting.phase == "over"
    spare = Conducted().into(phase)
    spare.join("machine-2")
    spare.event("machine-2", "never_ready", text="no room")
    assert (spare.phase, spare.journal.events[-1][0]) == ("running", "note")


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
