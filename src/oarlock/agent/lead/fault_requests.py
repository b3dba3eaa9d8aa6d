"""Faults that a user requests, to see that the run survives them (`oarlock chaos`): the leading half.

The leading agent checks the request, records what is about to happen, and has the task's host do it
(`host.faults`). A killed task counts as any that died; a preempted gang that forms again is no failure.
"""

from __future__ import annotations

from typing import cast

from oarlock.agent.lead.agents.placement import Agent
from oarlock.agent.lead.phase_machine import PhaseMachine
from oarlock.agent.protocol.fault_notes import continued
from oarlock.agent.protocol.messages import Question
from oarlock.agent.protocol.wire import Message
from oarlock.agent.protocol.wishes import FAULT_KINDS, Fault, FaultKind

LONGEST = 3600.0  # seconds: the longest pause
PAUSE_ENDS = "a pause"  # a deadline
_WORDS = {"kill": "killed", "delete": "deleted", "evict": "asked to evict"}


def inflict(question: Question, machine: PhaseMachine) -> Message:
    """Do what the client asks, or answer why not.

    `do`: kill, pause (`seconds`) or continue a `task`, preempt the gang; or note that the client deletes or
    evicts a `pod`. `generation`: the one that the client means.
    """
    refusal = _refusal(question, machine)
    if refusal is not None:
        return {"ok": False, "why": refusal}
    text = _note(question)
    if question.do != "continue":  # the task's host records that itself
        machine.record.emit("note", text=text)
    if question.do == "preempt":
        machine.reform("chaos: preempted")
    elif question.do in FAULT_KINDS:
        _pass_on(question, machine)
    return {"ok": True, "note": text}


def _refusal(question: Question, machine: PhaseMachine) -> str | None:
    do, seconds = question.do, question.seconds
    if do not in (*FAULT_KINDS, "preempt", "delete", "evict"):
        return f"no such fault: {do}"
    if do in ("delete", "evict"):
        return None if question.pod is not None else f"which pod is it that you {do}?"
    if do == "pause" and not (seconds is not None and 0 <= seconds <= LONGEST):
        return f"a pause takes 0 to {LONGEST:g} s"
    is_going = machine.phase == "running" or do == "continue" or (machine.phase, do) == ("scoring", "kill")
    if not is_going or question.generation != machine.number:
        return "that generation is not running"
    if do == "preempt":
        return None
    name = question.task
    if name is None:
        return f"which task is it that you {do}?"
    outcome = machine.generation.outcomes.get(name)
    if outcome is None or not outcome.is_alive:
        return f"{name} is not running"
    return None if any(agent.is_connected for agent in _hosts(name, machine)) else f"{name} is cut off"


def _note(question: Question) -> str:
    do = question.do
    if do == "preempt":
        return "chaos: preempted the gang"
    if do == "continue":
        return continued(str(question.task))
    if do == "pause":
        return f"chaos: paused {question.task} for {question.seconds:g} s"
    return f"chaos: {_WORDS[str(do)]} {question.pod or question.task}"


def _pass_on(question: Question, machine: PhaseMachine) -> None:
    kind, task, seconds = cast(FaultKind, question.do), str(question.task), question.seconds or 0
    for agent in _hosts(task, machine):
        agent.send(Fault(machine.number, kind, task, seconds))
    if kind == "pause":  # record the next report, although a long run records few
        machine.loop.after(PAUSE_ENDS, seconds, lambda: machine.generation.keep_next_reports())


def _hosts(task: str, machine: PhaseMachine) -> list[Agent]:
    return [agent for agent in machine.roster if task in machine.generation.tasks_on(agent.name)]
