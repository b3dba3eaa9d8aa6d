"""Faults that a user asks for, to see that the run survives them (`oarlock chaos`).

The leading agent takes the question, writes into the record what is about to happen, and has the task's
host do it. A killed task counts as any that died; a gang that is formed anew is nobody's failure. What
was paused is continued by its own host, whether anybody who asked for it is still there or not.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from oarlock.agent.host.task_process import Member
from oarlock.agent.lead.placement import Agent
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.fault_notes import continued
from oarlock.agent.protocol.messages import Question
from oarlock.agent.protocol.wire import Message
from oarlock.agent.protocol.wishes import Fault, FaultKind

if TYPE_CHECKING:
    from oarlock.agent.lead.conductor import Conductor

LONGEST = 3600.0  # seconds of a pause
_TO_TASKS = ("kill", "pause", "continue")
_WORDS = {"kill": "killed", "delete": "deleted", "evict": "asked to evict"}


def inflict(question: Question, conductor: Conductor) -> Message:
    """`do`: kill, pause (`seconds`) or continue a `task`, preempt the gang; or note that a `pod` is deleted
    or evicted by who asks. `generation`: the one that is meant."""
    refusal = _refusal(question, conductor)
    if refusal is not None:
        return {"ok": False, "why": refusal}
    text = _told(question)
    if question.do != "continue":  # its host says so
        conductor.record.emit("note", text=text)
    if question.do == "preempt":
        conductor.reform("chaos: preempted")
    elif question.do in _TO_TASKS:
        _pass_on(question, conductor)
    return {"ok": True, "note": text}


class Faults:
    """Those of one host's tasks. `signal_task` reaches a task that is alive, as a stranger's signal would."""

    def __init__(
        self, loop: Loop, signal_task: Callable[[Member, int], None], tell: Callable[[Message], None]
    ) -> None:
        self.loop = loop
        self.signal_task = signal_task
        self.tell = tell

    def inflict(self, wish: Fault, member: Member) -> None:
        if wish.fault == "kill":
            self.signal_task(member, signal.SIGKILL)
        elif wish.fault == "pause":
            self.signal_task(member, signal.SIGSTOP)
            self.loop.after(_pause_of(member), wish.seconds, lambda: self._go_on(member))
        elif wish.fault == "continue":
            self._go_on(member)

    def _go_on(self, member: Member) -> None:
        self.loop.cancel(_pause_of(member))
        if member.is_alive:
            self.signal_task(member, signal.SIGCONT)
            self.tell({"kind": "note", "text": continued(member.name)})


def _refusal(question: Question, conductor: Conductor) -> str | None:
    do, seconds = question.do, question.seconds
    if do not in (*_TO_TASKS, "preempt", "delete", "evict"):
        return f"no such fault: {do}"
    if do in ("delete", "evict"):
        return None if question.pod is not None else f"which pod is it that you {do}?"
    if do == "pause" and not (seconds is not None and 0 <= seconds <= LONGEST):
        return f"a pause takes 0 to {LONGEST:g} s"
    is_going = conductor.phase == "running" or do == "continue"
    if not is_going or question.generation != conductor.generation:
        return "that generation is not running"
    if do == "preempt":
        return None
    name = question.task
    if name is None:
        return f"which task is it that you {do}?"
    outcome = conductor.outcomes.get(name)
    if outcome is None or not outcome.is_alive:
        return f"{name} is not running"
    return None if any(agent.is_connected for agent in _hosts(name, conductor)) else f"{name} is cut off"


def _told(question: Question) -> str:
    do = question.do
    if do == "preempt":
        return "chaos: preempted the gang"
    if do == "continue":
        return continued(str(question.task))
    if do == "pause":
        return f"chaos: paused {question.task} for {question.seconds:g} s"
    return f"chaos: {_WORDS[str(do)]} {question.pod or question.task}"


def _pass_on(question: Question, conductor: Conductor) -> None:
    do, task, seconds = question.do, question.task, question.seconds or 0
    wish = Fault(conductor.generation, cast(FaultKind, do), str(task), seconds)
    for agent in _hosts(task, conductor):
        agent.send(wish)
    if do == "pause":  # how soon it steps again is to be seen, however few reports are kept by now
        conductor.loop.after("a pause", seconds, conductor.keep_next_reports)


def _hosts(task: Any, conductor: Conductor) -> list[Agent]:
    return [one for one in conductor.agents.values() if task in conductor.places.get(one.name, [])]


def _pause_of(member: Member) -> str:
    return f"pause of {member.name}"
