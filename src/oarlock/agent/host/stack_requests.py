"""Has tasks show their stacks in their logs, and marks there where each answer ends."""

from __future__ import annotations

import time

from oarlock.agent.host.task_process import Member
from oarlock.agent.net.loop import Loop
from oarlock.system import stack_dump

_LOOK = 0.05  # seconds between two looks at a task that is writing
_PATIENCE = 30.0  # seconds until one that sits in the kernel is given up


class Showing:
    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.asked_again: set[str] = set()

    def ask(self, member: Member) -> None:
        """Whoever asks while an answer is being written gets the next one, complete."""
        if self.loop.expects(_look_at(member)):
            self.asked_again.add(member.name)
        elif member.is_alive and member.pid is not None:
            question = stack_dump.ask(member.pid)
            member.log.say(f"oarlock: {member.name} {question.said}")
            if question.said == stack_dump.SHOWS:
                self._look_later(member, question, time.monotonic() + _PATIENCE)

    def _look_later(self, member: Member, question: stack_dump.Question, deadline: float) -> None:
        self.loop.after(_look_at(member), _LOOK, lambda: self._look(member, question, deadline))

    def _look(self, member: Member, question: stack_dump.Question, deadline: float) -> None:
        if member.is_closed or not member.is_alive:
            return
        if question.is_open and time.monotonic() < deadline:
            self._look_later(member, question, deadline)
            return
        if not question.is_open:
            member.read_output()  # what it wrote is in the pipe by now
            member.log.say(f"oarlock: {member.name} {stack_dump.SHOWN}")
        if member.name in self.asked_again:
            self.asked_again.discard(member.name)
            self.ask(member)


def _look_at(member: Member) -> str:
    return f"look at the stacks of {member.name}"
