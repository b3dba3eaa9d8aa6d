"""Has all trainers of a gang agree on one step before which they save, or halt.

Each trainer is asked for its step. Its gate answers, and then holds back the step after the next one. Once
all have answered, the highest of these held steps is one that no trainer can have passed. The gate does not
wait for the training thread, so a rank that is blocked inside a collective answers, too.
`training.steps.gate` is the trainers' side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oarlock.agent.net.deadlines import Deadlines
from oarlock.agent.protocol.gates import CarryOn, GateMessage, MeetAt, Purpose, Whereabouts, WhereAreYou

_PATIENCE = 10.0  # seconds for all to answer before a save
_AGAIN = 0.1  # seconds until trainers that should halt are asked again


class Meeting:
    """One question to all trainers, their answers, and the step that follows from them."""

    def __init__(self, number: int, purpose: Purpose, tasks: Iterable[str]) -> None:
        self.number = number
        self.purpose = purpose
        self.awaited = set(tasks)
        self.answers: dict[str, Whereabouts] = {}
        self.step: int | None = None
        self.is_open = True

    def hear(self, task: str, answer: Whereabouts) -> None:
        """Count an answer, if it belongs to this meeting and this task was asked."""
        if answer.meeting == self.number and (task in self.awaited or task in self.answers):
            self.awaited.discard(task)
            self.answers[task] = answer

    def excuse(self, task: str) -> None:
        """Do not wait for a task that has ended."""
        self.awaited.discard(task)
        self.answers.pop(task, None)

    def conclude(self) -> None:
        """Agree on a step if all have answered from within the same loop; otherwise on no step."""
        self.is_open = False
        loops = {answer.loop for answer in self.answers.values()}
        steps = [answer.step for answer in self.answers.values() if answer.step is not None]
        if not self.awaited and len(loops) == 1 and len(steps) == len(self.answers):
            self.step = max(steps) + 2

    @property
    def is_incomplete(self) -> bool:
        """Whether it is over and some trainer will not halt: there is no step, or its loop has ended."""
        has_gap = self.step is None or any(answer.step is None for answer in self.answers.values())
        return has_gap and not self.is_open

    @property
    def is_deserted(self) -> bool:
        """Whether all have answered that they are outside any loop."""
        return not self.awaited and all(answer.step is None for answer in self.answers.values())

    def message(self) -> GateMessage:
        """What to send to the gates now: the question, the step, or that there is no agreement."""
        if self.is_open:
            return WhereAreYou(self.number)
        return CarryOn(self.number) if self.step is None else MeetAt(self.number, self.purpose, self.step)


class StepAgreement:
    """The meetings of one generation, one after the other. `tell` sends to all hosts."""

    def __init__(self, loop: Deadlines, tell: Callable[[GateMessage], None]) -> None:
        self.loop = loop
        self.tell = tell
        self.number = 0
        self.form([])

    def form(self, trainers: Iterable[str]) -> None:
        """Begin a generation with these trainers, and drop what is known of the last one."""
        self.members = frozenset(trainers)
        self.trainers = set(self.members)  # those that are alive
        self.gates: dict[str, Whereabouts] = {}
        self.current: Meeting | None = None
        self.is_save_wanted = self.is_halting = False
        self._forget_deadlines()

    def hear(self, tasks: Iterable[str], gates: Mapping[str, Whereabouts], ended: Iterable[str]) -> None:
        """Take in what an agent's status says about gates, and which of its tasks have ended."""
        for task in self.trainers.intersection(ended):
            self.trainers.discard(task)
            self.gates.pop(task, None)
            if self.current is not None:
                self.current.excuse(task)
        for task in self.trainers.intersection(tasks):
            answer = gates.get(task)
            if answer is None:
                self.gates.pop(task, None)
                continue
            known = self.gates.get(task)
            self.is_save_wanted |= answer.asks > (known.asks if known is not None else 0)
            self.gates[task] = answer
            if self.current is not None:
                self.current.hear(task, answer)
        self._proceed()

    def start_again(self, task: str) -> None:
        """Expect a trainer that restarts alone to announce its gate again."""
        if task in self.members:
            self.trainers.add(task)
            self.gates.pop(task, None)

    @property
    def is_possible(self) -> bool:
        """Whether every live trainer has a gate."""
        return bool(self.trainers) and len(self.gates) == len(self.trainers)

    @property
    def is_settled(self) -> bool:
        """Whether no trainer is left to wait for: all have ended, or are outside any loop that could halt."""
        return not self.trainers or (self.current is not None and self.current.is_deserted)

    def halt(self) -> None:
        """Have all trainers leave before the same step. The caller sets the deadline."""
        self.is_halting, self.is_save_wanted = True, False
        if self.current is not None and self.current.is_open:
            self.current.purpose = "halt"
            self.loop.cancel("meeting")
        else:
            self._open("halt")

    def close(self) -> None:
        """Release the trainers that wait for a step."""
        self._forget_deadlines()
        self.is_halting = self.is_save_wanted = False
        if self.current is not None and self.current.is_open:
            self._conclude(self.current)

    def _open(self, purpose: Purpose) -> None:
        self.number += 1
        self.current = Meeting(self.number, purpose, self.trainers)
        if purpose == "save":
            self.loop.after("meeting", _PATIENCE, self.close)
        self.tell(self.current.message())

    def _proceed(self) -> None:
        meeting = self.current
        if meeting is not None and meeting.is_open and not meeting.awaited:
            self._conclude(meeting)
        if self.is_halting:
            is_in_vain = meeting is not None and meeting.is_incomplete and not self.is_settled
            if is_in_vain and not self.loop.expects("meeting again"):
                self.loop.after("meeting again", _AGAIN, lambda: self._open("halt"))
        elif self.is_save_wanted and self.is_possible and (meeting is None or not meeting.is_open):
            self.is_save_wanted = False
            self._open("save")

    def _conclude(self, meeting: Meeting) -> None:
        self.loop.cancel("meeting")
        self.is_save_wanted = False  # a task that asked in the meantime takes part, or asks again
        meeting.conclude()
        self.tell(meeting.message())

    def _forget_deadlines(self) -> None:
        self.loop.cancel("meeting")
        self.loop.cancel("meeting again")
