"""What clients ask of the leading agent: stacks, another number of workers, a fault. Pure."""

from __future__ import annotations

from dataclasses import replace

from oarlock.agent.lead import fault_requests
from oarlock.agent.lead.conductor import Conductor
from oarlock.agent.lead.phase_machine import PhaseMachine
from oarlock.agent.protocol.messages import Question
from oarlock.agent.protocol.wire import Message
from oarlock.agent.protocol.wishes import Clear, Halt, ShowStacks


def answer(question: Question, conductor: Conductor) -> Message:
    """Do what a client asks. The answer has `ok`, and `why` if `ok` is false."""
    machine = conductor.machine
    if question.ask == "stacks":
        machine.roster.order(ShowStacks(machine.number))
        return {"ok": True}
    if question.ask == "scale" and question.workers is not None:
        refusal = _scale(machine, question.workers)
        return {"ok": False, "why": refusal} if refusal else {"ok": True, **_formation(machine)}
    if question.ask == "fault":
        return fault_requests.inflict(question, machine)
    return {"ok": False, "why": f"no such question: {question.ask}"}


def _scale(machine: PhaseMachine, workers: int) -> str | None:
    """Change the number of workers of a live run. Returns None, or the reason for a refusal."""
    if machine.phase in ("scoring", "finishing", "stopping", "over") or machine.stopped is not None:
        return "the run is ending"
    refusal = machine.spec.refuses_workers(workers)
    if refusal is not None:
        return refusal
    if machine.target.set_workers(workers):
        noun = "worker" if workers == 1 else "workers"
        machine.record.emit("scale", workers=workers)
        _resize(machine, f"scaled to {workers} {noun}")
    return None


def _resize(machine: PhaseMachine, why: str) -> None:
    """Apply a new size. A running gang keeps running until all wanted tasks have a slot."""
    target, wish = machine.target, machine.roster.wish
    if machine.phase != "running":
        if isinstance(wish, (Clear, Halt)):
            machine.roster.make(replace(wish, want=target.sizes))
        machine.advance()
    elif len(machine.generation.tasks) != target.total and (
        machine.spec.is_alone or target.is_complete(target.place(machine.roster))
    ):
        machine.reform(why)  # otherwise it already has this size: no other gang had formed


def _formation(machine: PhaseMachine) -> Message:
    """How many worker tasks are wanted, and the first generation that may have that many."""
    tasks = machine.target.sizes.get("worker", 0)
    return {"tasks": tasks, "generation": machine.number + (machine.phase != "running")}
