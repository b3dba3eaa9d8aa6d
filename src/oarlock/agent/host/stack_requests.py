"""Has tasks write their stacks to their logs, and marks there where each dump ends."""

from __future__ import annotations

from oarlock.agent.host.task_process import TaskProcess
from oarlock.agent.net.deadlines import Deadlines
from oarlock.system import stack_dump

_POLL = 0.05  # seconds between two checks whether a task has finished writing
_PATIENCE = 30.0  # seconds to wait for a task that is blocked in the kernel


class StackRequests:
    """Requests stack dumps. A request during a dump gets the next one, complete."""

    def __init__(self, loop: Deadlines) -> None:
        self._loop = loop
        self._requested_again: set[str] = set()

    def request(self, process: TaskProcess) -> None:
        """Ask a task for its stacks. If it cannot answer, its log gets a line that says so."""
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
            process.line.read_output()  # all it wrote is in the pipe by now
            process.line.say(f"oarlock: {process.name} {stack_dump.SHOWN}")
        if process.name in self._requested_again:
            self._requested_again.discard(process.name)
            self.request(process)


def _answer_of(process: TaskProcess) -> str:
    """The name of the deadline at which a host checks again whether the task has answered."""
    return f"stacks of {process.name}"
