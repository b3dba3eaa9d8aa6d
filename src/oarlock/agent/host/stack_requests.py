"""Has tasks show their stacks in their logs, and marks there where each answer ends."""

from __future__ import annotations

from oarlock.agent.host.task_process import TaskProcess
from oarlock.agent.net.deadlines import Deadlines
from oarlock.system import stack_dump

_POLL = 0.05  # seconds between two looks at whether a task has finished writing
_PATIENCE = 30.0  # seconds until a task that sits in the kernel is given up


class StackRequests:
    """A request that comes while an answer is written gets the next one, complete."""

    def __init__(self, loop: Deadlines) -> None:
        self._loop = loop
        self._requested_again: set[str] = set()

    def request(self, process: TaskProcess) -> None:
        """Ask a task for its stacks. One that cannot answer has a line about that in its log."""
        if self._loop.expects(_answer_of(process)):
            self._requested_again.add(process.name)
        elif process.is_alive and process.pid is not None and process.line is not None:
            question = stack_dump.ask(process.pid)
            process.line.say(f"oarlock: {process.name} {question.said}")
            if question.said == stack_dump.SHOWS:
                self._check_later(process, question, self._loop.now() + _PATIENCE)

    def _check_later(self, process: TaskProcess, question: stack_dump.StackRequest, deadline: float) -> None:
        self._loop.after(_answer_of(process), _POLL, lambda: self._check(process, question, deadline))

    def _check(self, process: TaskProcess, question: stack_dump.StackRequest, deadline: float) -> None:
        if process.line is None or not process.is_alive:
            return
        if question.is_open and self._loop.now() < deadline:
            self._check_later(process, question, deadline)
            return
        if not question.is_open:
            process.line.read_output()  # what it wrote is in the pipe by now
            process.line.say(f"oarlock: {process.name} {stack_dump.SHOWN}")
        if process.name in self._requested_again:
            self._requested_again.discard(process.name)
            self.request(process)


def _answer_of(process: TaskProcess) -> str:
    """The deadline at which a host looks again whether the task has answered."""
    return f"stacks of {process.name}"
