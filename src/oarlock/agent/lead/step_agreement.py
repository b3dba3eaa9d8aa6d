"""How all trainers of a gang come to do something before the same step: to save, or to halt.

Each is asked where it is and from its answer on holds back its second next step. When all have
answered, the step after that is one that nobody can have passed. Nobody waits for a training
thread, so ranks that are blocked inside a collective do no harm. The other side is `training.gate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oarlock.agent.net.deadlines import Deadlines
from oarlock.agent.protocol.gates import CarryOn, GateMessage, MeetAt, Purpose, Whereabouts, WhereAreYou

_PATIENCE = 10.0  # seconds for all to answer when it is only about saving
_AGAIN = 0.1  # seconds before those who are to halt are asked again


class Meeting:
    """Who was asked, who has answered, and what came of it."""

    def __init__(self, number: int, purpose: Purpose, tasks: Iterable[str]) -> None:
        self.number = number
        self.purpose = purpose
        self.awaited = set(tasks)
        self.answers: dict[str, Whereabouts] = {}
        self.step: int | None = None
        self.is_open = True

    def hear(self, task: str, told: Whereabouts) -> None:
        if told.meeting == self.number and (task in self.awaited or task in self.answers):
            self.awaited.discard(task)
            self.answers[task] = told

    def excuse(self, task: str) -> None:
        """It has ended."""
        self.awaited.discard(task)
        self.answers.pop(task, None)

    def conclude(self) -> None:
        """Agree on a step, if all have answered from within the same loop; else it is called off."""
        self.is_open = False
        loops = {told.loop for told in self.answers.values()}
        steps = [told.step for told in self.answers.values() if told.step is not None]
        if not self.awaited and len(loops) == 1 and len(steps) == len(self.answers):
            self.step = max(steps) + 2

    @property
    def is_apart(self) -> bool:
        """It is over and somebody will not be there: it was called off, or a loop has ended before."""
        has_gap = self.step is None or any(told.step is None for told in self.answers.values())
        return has_gap and not self.is_open

    @property
    def is_deserted(self) -> bool:
        """All have answered that they are in no loop."""
        return not self.awaited and all(told.step is None for told in self.answers.values())

    def message(self) -> GateMessage:
        if self.is_open:
            return WhereAreYou(self.number)
        return CarryOn(self.number) if self.step is None else MeetAt(self.number, self.purpose, self.step)


class StepAgreement:
    """Those of one generation, one after the other. `tell` reaches all hosts."""

    def __init__(self, loop: Deadlines, tell: Callable[[GateMessage], None]) -> None:
        self.loop = loop
        self.tell = tell
        self.number = 0
        self.form([])

    def form(self, trainers: Iterable[str]) -> None:
        """A generation begins."""
        self.trainers = set(trainers)  # that are alive
        self.gates: dict[str, Whereabouts] = {}
        self.current: Meeting | None = None
        self.is_save_wanted = self.is_halting = False
        self._forget_deadlines()

    def hear(self, tasks: Iterable[str], gates: Mapping[str, Whereabouts], ended: Iterable[str]) -> None:
        """What one agent says about its tasks."""
        for task in self.trainers.intersection(ended):
            self.trainers.discard(task)
            self.gates.pop(task, None)
            if self.current is not None:
                self.current.excuse(task)
        for task in self.trainers.intersection(tasks):
            told = gates.get(task)
            if told is None:
                self.gates.pop(task, None)
                continue
            known = self.gates.get(task)
            self.is_save_wanted |= told.asks > (known.asks if known is not None else 0)
            self.gates[task] = told
            if self.current is not None:
                self.current.hear(task, told)
        self._proceed()

    def start_again(self, task: str) -> None:
        """This trainer, alone."""
        self.trainers.add(task)
        self.gates.pop(task, None)

    @property
    def is_possible(self) -> bool:
        return bool(self.trainers) and len(self.gates) == len(self.trainers)

    @property
    def is_settled(self) -> bool:
        """Nobody who is to halt has to be waited for: they have ended, or are in no loop that could."""
        return not self.trainers or (self.current is not None and self.current.is_deserted)

    def halt(self) -> None:
        """Have all trainers leave before the same step. Who waits for long enough is the caller's to say."""
        self.is_halting, self.is_save_wanted = True, False
        if self.current is not None and self.current.is_open:
            self.current.purpose = "halt"
            self.loop.cancel("meeting")
        else:
            self._open("halt")

    def close(self) -> None:
        """Nobody is to wait for a decision any longer."""
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
            is_in_vain = meeting is not None and meeting.is_apart and not self.is_settled
            if is_in_vain and not self.loop.expects("meeting again"):
                self.loop.after("meeting again", _AGAIN, lambda: self._open("halt"))
        elif self.is_save_wanted and self.is_possible and (meeting is None or not meeting.is_open):
            self.is_save_wanted = False
            self._open("save")

    def _conclude(self, meeting: Meeting) -> None:
        self.loop.cancel("meeting")
        self.is_save_wanted = False  # who asked meanwhile is served, or asks again
        meeting.conclude()
        self.tell(meeting.message())

    def _forget_deadlines(self) -> None:
        self.loop.cancel("meeting")
        self.loop.cancel("meeting again")
