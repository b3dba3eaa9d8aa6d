"""The conductor as tables: in this phase, after this message, these wishes, these events and that phase.

No process, no socket and no time is involved. A cell reads `phase | wishes | events`: `*:` went to both
machines, `1:` to machine-1 only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oarlock.agent.lead.phases.aftermath import Verdict
from oarlock.agent.lead.phases.phase_table import TRANSITIONS
from oarlock.agent.protocol.gates import Whereabouts
from oarlock.agent.protocol.outcome import Outcome
from tests.support.conducted import SPEC, Conducted

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


def lose(run: Conducted) -> None:
    run.conductor.leave(run.agents["machine-1"], "closed")
    run.loop.passes("loss of machine-1")


def halt(run: Conducted) -> None:
    """Both trainers leave at their gates."""
    run.outcome("machine-0", "worker-0", 143, ours=True)
    run.outcome("machine-1", "worker-1", 143, ours=True)


def clear(run: Conducted) -> None:
    for name in ("machine-0", "machine-1"):
        run.status(name, cleared=run.machine.number)


def spare(run: Conducted) -> None:
    run.join("machine-2")
    run.status("machine-2")


def stall(run: Conducted) -> None:
    """One step is reported, and none for limits.stall after it."""
    run.event("machine-1", "report", task="worker-1", step=3)
    run.loop.passes("stall")


def twice(call: Callable[[], None]) -> None:
    call()
    call()


MESSAGES: dict[str, Callable[[Conducted], Any]] = {
    "a spare machine joins": spare,
    "an agent reconnects": lambda run: run.join("machine-1"),
    "another takes its place": lambda run: run.join("machine-1", uid="other"),
    "a machine that was given up joins": lambda run: run.join("machine-1", machine="given up"),
    "an agent joins under the leader's name": lambda run: run.join("machine-0", uid="other"),
    "the awaited machine is ready": lambda run: run.status("machine-1", ready=True),
    "a trainer fails": lambda run: run.outcome("machine-1", "worker-1", 1),
    "a trainer is ended by its host": lambda run: run.outcome("machine-1", "worker-1", 143, ours=True),
    "a trainer ends with 0": lambda run: run.outcome("machine-1", "worker-1", 0),
    "the leader task ends with 0": lambda run: run.outcome("machine-0", "worker-0", 0),
    "both trainers halt": halt,
    "one machine has cleared": lambda run: run.status("machine-1", cleared=run.machine.number),
    "all machines have cleared": clear,
    "a machine is asked to leave": lambda run: run.status("machine-1", leaving=True, ready=False),
    "a connection is cut": lambda run: run.conductor.leave(run.agents["machine-1"], "closed"),
    "an agent is lost": lose,
    "an agent says goodbye": lambda run: run.conductor.leave(run.agents["machine-1"], "bye", for_good=True),
    "a step is reported": lambda run: run.event("machine-1", "report", task="worker-1", step=3),
    "a machine can run no tasks": lambda run: run.event("machine-1", "never_ready", text="no room"),
    "an agent notes something": lambda run: run.event("machine-1", "note", text="hello"),
    "an agent speaks for another's task": lambda run: run.event("machine-1", "error", task="worker-0"),
    "the user stops": lambda run: run.conductor.on_user_stop(),
    "the user stops twice": lambda run: twice(run.conductor.on_user_stop),
    "the machine has to leave": lambda run: run.conductor.on_preempted(),
    "the machine has to leave at once": lambda run: run.conductor.leave_now(),
    "it is scaled down": lambda run: run.ask(ask="scale", workers=1),
    "stacks are requested": lambda run: run.ask(ask="stacks"),
    "a task is killed on purpose": lambda run: run.ask(
        ask="fault", do="kill", task="worker-1", generation=run.machine.number
    ),
    "the gang is preempted on purpose": lambda run: run.ask(
        ask="fault", do="preempt", generation=run.machine.number
    ),
    "limits.runtime passes": lambda run: run.loop.passes("runtime"),
    "limits.rendezvous passes": lambda run: run.loop.passes("rendezvous"),
    "no more steps are reported": stall,
    "the grace of a halt passes": lambda run: run.loop.passes("halt"),
}

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


# What the record says of an end


def fields(run: Conducted, kind: str) -> dict[str, Any]:
    return next(fields for found, fields in run.journal.events if found == kind)


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


# Forming a generation


def test_no_gang_forms_while_an_agent_is_cut_off() -> None:
    run = Conducted().into("gathering")
    run.join("machine-2")
    run.conductor.leave(run.agents["machine-2"], "closed")
    run.status("machine-1", ready=True)
    assert run.phase == "gathering"
    run.loop.passes("loss of machine-2")
    assert run.phase == "running"


def test_no_gang_forms_once_another_agent_leads() -> None:
    run = Conducted().into("gathering")
    run.leader.leads = False
    run.status("machine-1", ready=True)
    assert (run.phase, run.leader.fences) == ("gathering", [])


def test_a_generation_is_later_than_any_that_an_agent_remembers() -> None:
    run = Conducted().into("gathering")
    run.status("machine-0", generation=7)
    run.status("machine-1", generation=10**7, ready=True)  # not credible
    assert (run.machine.number, run.leader.fences) == (8, [8])


def test_checkpoints_that_could_not_be_fenced_are_noted() -> None:
    run = Conducted().into("gathering")
    run.leader.checkpoints.held, run.leader.trouble = ["step-1"], "/checkpoints: read-only"
    run.status("machine-1", ready=True)
    assert fields(run, "note")["text"] == "older generations could not be shut out of /checkpoints: read-only"


ELASTIC = replace(SPEC, sizes={"worker": 3}, least={"worker": 2}, machines=3)


def test_an_elastic_gang_waits_a_moment_for_more_and_grows_when_they_come() -> None:
    run = Conducted(ELASTIC).into("gathering")
    run.status("machine-1", ready=True)
    assert run.phase == "gathering"
    run.loop.passes("more agents")
    assert (run.phase, len(run.machine.generation.tasks)) == ("running", 2)
    spare(run)
    assert (run.phase, run.machine.generation.blame) == ("clearing", "more machines have joined")


def test_an_elastic_gang_forms_at_once_when_it_is_complete() -> None:
    run = Conducted(ELASTIC).into("gathering")
    run.status("machine-1", ready=True)
    spare(run)
    assert (run.phase, run.loop.expects("more agents")) == ("running", False)
    run.machine._form_smaller()  # too late
    assert run.machine.number == 1


def test_a_larger_gang_forms_when_there_is_room_for_it() -> None:
    run = Conducted().into("running")
    assert run.ask(ask="scale", workers=3) == {"ok": True, "tasks": 3, "generation": 1}
    assert run.phase == "running"
    spare(run)
    assert run.phase == "clearing"
    assert run.ask(ask="scale", workers=2) == {"ok": True, "tasks": 2, "generation": 2}


def test_questions_that_are_refused() -> None:
    run = Conducted().into("stopping")
    assert run.ask(ask="scale", workers=1) == {"ok": False, "why": "the run is ending"}
    assert not run.ask(ask="scale", workers=1000)["ok"]
    assert run.ask(ask="weather") == {"ok": False, "why": "no such question: weather"}
    assert not Conducted().into("running").ask(ask="scale", workers=1000)["ok"]


# Tasks that restart alone

SERVED = replace(
    SPEC,
    sizes={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
    machines=1,
    limits=replace(SPEC.limits, restarts=1),
)
SLOTS = {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}


def served() -> Conducted:
    run = Conducted(SERVED)
    run.join("machine-0")
    run.status("machine-0", ports=(1, 2, 3, 4), slots=SLOTS)
    for task in ("chief-0", "worker-0", "ps-0", "evaluator-0"):
        run.outcome("machine-0", task, None)
    run.sent.clear()
    run.journal.events.clear()
    return run


def test_a_worker_beside_parameter_servers_restarts_alone() -> None:
    run = served()
    run.leader.checkpoints.held = ["step-1"]
    run.outcome("machine-0", "worker-0", 1, signal=9)
    assert run.summary() == "running | 0:run,1,launches={'worker-0': 2} | restart:0:True"
    run.outcome("machine-0", "worker-0", 1, signal=9)  # the same one, told again
    assert run.summary() == "running | 0:run,1,launches={'worker-0': 2} | restart:0:True"
    run.outcome("machine-0", "worker-0", 1, signal=9, launch=2)
    assert (run.phase, run.sent[-1]) == ("clearing", "0:clear,1,want=1")
    run.status("machine-0", cleared=1)
    assert fields(run, "end")["refusal"] == (
        "worker-0 restarts alone, with a budget of its own: limits.restarts is 1, and it is used up"
    )


def test_progress_before_its_last_restart_does_not_fill_the_budget_of_a_task() -> None:
    run = served()
    run.event("machine-0", "report", task="chief-0", step=3)
    run.outcome("machine-0", "chief-0", 1, error={"type": "ValueError", "message": "no"})
    assert run.phase == "running"
    run.outcome("machine-0", "chief-0", 1, error={"type": "ValueError", "message": "no"}, launch=2)
    assert run.phase == "clearing", "it failed twice in the same way without a step in between"


def test_training_continues_without_an_evaluator_that_keeps_failing() -> None:
    run = served()
    run.outcome("machine-0", "evaluator-0", 1, signal=9)
    run.outcome("machine-0", "evaluator-0", 1, signal=9, launch=2)
    assert run.phase == "running"
    assert fields(run, "note")["text"] == (
        "evaluator-0 is not started again: limits.restarts is 1, and it is used up; "
        "training goes on without it"
    )


def test_a_lost_parameter_server_restarts_the_gang() -> None:
    run = served()
    run.outcome("machine-0", "ps-0", 1, signal=9)
    assert run.phase == "clearing"


def test_beside_parameter_servers_the_leader_halts_and_nobody_waits_for_the_others() -> None:
    run = served()
    gates = {"chief-0": Whereabouts(1)}
    run.status("machine-0", gates=gates)
    run.conductor.on_user_stop()
    assert run.phase == "halting"
    for task in ("ps-0", "worker-0"):
        run.status("machine-0", tasks=(Outcome(task, code=1, failed_at=1.0),), gates=gates)
        assert run.phase == "halting"
    run.status("machine-0", tasks=(Outcome("chief-0", code=143, ours=True),), gates={})
    assert run.phase == "stopping"


def test_beside_parameter_servers_a_lost_machine_of_workers_costs_no_step() -> None:
    run = Conducted(replace(SERVED, sizes={"chief": 1, "worker": 2, "ps": 1}, machines=2))
    run.join("machine-0")
    run.join("machine-1")
    run.status("machine-0", ports=(1, 2, 3), slots={"chief": 1, "worker": 1, "ps": 1})
    run.status("machine-1", ports=(4,), slots={"worker": 1})
    assert run.machine.generation.tasks_on("machine-1") == ["worker-1"]
    gates = {"chief-0": Whereabouts(1)}
    run.status("machine-0", generation=1, gates=gates, tasks=(Outcome("chief-0"), Outcome("ps-0")))
    run.conductor.leave(run.agents["machine-1"], "closed")
    run.loop.passes("loss of machine-1")
    assert run.phase == "halting"
    run.status("machine-0", gates={}, tasks=(Outcome("chief-0", code=143, ours=True),))
    assert run.phase == "clearing"
    assert (run.machine.generation.blame or "").startswith("lost contact with machine-1")


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


@pytest.mark.parametrize(
    ("task", "phase"), [("chief-0", "stopping"), ("worker-0", "halting"), ("evaluator-0", "halting")]
)
def test_a_leader_that_restarted_alone_has_no_gate_until_it_says_so(task: str, phase: str) -> None:
    run = served()
    gates = {"chief-0": Whereabouts(1)}
    run.status("machine-0", gates=gates)
    gates.pop(task, None)
    run.status("machine-0", tasks=(Outcome(task, code=137, signal=9, failed_at=1.0),), gates=gates)
    run.conductor.on_user_stop()
    assert run.phase == phase


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
