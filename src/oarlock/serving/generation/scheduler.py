"""Continuous batching: the thread that calls the model, one step at a time for all texts together.

New texts join and finished ones leave between two steps; no text waits for a batch to fill or to end. The
queue is bounded by the time that its work takes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import isnan
from typing import TYPE_CHECKING

from oarlock.serving.generation.sampling import draw
from oarlock.serving.runtimes.runtime import ModelError, Overloaded

if TYPE_CHECKING:
    from oarlock.serving.generation.completion import Completion
    from oarlock.serving.generation.generator import Generator
    from oarlock.serving.runtimes.runtime import Array

_WEIGHT = 0.1  # weight of the newest step in the mean step time


@dataclass(frozen=True)
class Pass:
    """What one turn of the thread did."""

    tokens: int
    seconds: float
    waiting: int  # texts


class Scheduler:
    """Owns the generator until `close` returns. Any thread may submit."""

    def __init__(self, generator: Generator, queue: float) -> None:
        """`queue`: the seconds of work that may wait."""
        self._generator = generator
        self.queue = queue
        self.note: Callable[[Pass], None] = lambda done: None  # called by the thread after each pass
        self._changed = threading.Condition()
        self._waiting: deque[Completion] = deque()
        self._running: list[Completion] = []
        self._free = list(range(generator.slots))  # a heap: the lowest slots are used first
        self._step_seconds = 0.0
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)
        self._thread.start()

    def submit(self, completions: Sequence[Completion]) -> None:
        """Accept these texts, all or none. Raises Overloaded."""
        with self._changed:
            ahead = self._seconds_ahead()
            if ahead > self.queue or self._is_closing:
                raise Overloaded(max(1.0, ahead - self.queue))
            self._waiting.extend(completions)
            self._changed.notify_all()

    @property
    def load(self) -> tuple[int, int]:
        """The number of texts being written, and of texts that wait."""
        with self._changed:
            return len(self._running), len(self._waiting)

    def close(self) -> None:
        """Stop after the current step; incomplete texts fail."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _seconds_ahead(self) -> float:
        """The maximum time that the work ahead of a new text takes; 0 if it would not wait."""
        if len(self._free) > len(self._waiting):
            return 0.0
        now = time.monotonic()
        work = sum(
            max(0.0, min(one.left * self._step_seconds, one.deadline - now))
            for one in (*self._running, *self._waiting)
        )
        return work / self._generator.slots

    def _run(self) -> None:
        while self._await_work():
            try:
                self._pass()
            except Exception as problem:  # whatever it is, no client may wait forever
                self._fail_all(problem)
        self._fail_all(Overloaded(1.0))

    def _await_work(self) -> bool:
        with self._changed:
            while not (self._waiting or self._running or self._is_closing):
                self._changed.wait()
            return not self._is_closing

    def _pass(self) -> None:
        """Let texts leave and join, then draw a token for each."""
        self._leave()
        began = time.monotonic()
        joining = self._join()
        self._start([(one, one.first_window(self._generator.context)) for one in joining])
        going = [one for one in self._running if not one.is_over]
        windows = [(one, one.next_window(self._generator.context)) for one in going]
        self._step([one for one, window in windows if window is None])
        self._start([(one, window) for one, window in windows if window is not None])
        if joining or going:
            taken = time.monotonic() - began
            self._step_seconds += (taken - self._step_seconds) * (_WEIGHT if self._step_seconds else 1)
            self.note(Pass(len(joining) + len(going), taken, len(self._waiting)))

    def _leave(self) -> None:
        """Free the slots of texts that are complete, late or abandoned."""
        now = time.monotonic()
        for one in self._running:
            if not one.is_over and not one.is_abandoned and one.deadline <= now:
                one.cut()
        with self._changed:
            going = [one for one in self._running if not (one.is_over or one.is_abandoned)]
            for slot in {one.slot for one in self._running} - {one.slot for one in going}:
                heappush(self._free, slot)
            self._running = going

    def _join(self) -> list[Completion]:
        """Give free slots to the texts that waited longest. Abandoned and late texts get none."""
        now = time.monotonic()
        joining = []
        with self._changed:
            wanted = [one for one in self._waiting if not one.is_abandoned]
            late = [one for one in wanted if one.deadline <= now]
            self._waiting = deque(one for one in wanted if one.deadline > now)
            while self._waiting and self._free:
                one = self._waiting.popleft()
                one.slot = heappop(self._free)
                joining.append(one)
            self._running = self._running + joining
        for one in late:
            one.fail(TimeoutError("the request waited until its deadline"))
        return joining

    def _start(self, windows: Sequence[tuple[Completion, list[int]]]) -> None:
        for one, window in windows:
            try:
                scores = self._generator.start(one.slot, window)
            except Exception as problem:
                one.fail(problem)
            else:
                self._draw([one], scores[None])

    def _step(self, group: Sequence[Completion]) -> None:
        if not group:
            return
        try:
            scores = self._generator.step(
                [one.slot for one in group], [one.position for one in group], [one.newest for one in group]
            )
        except Exception as problem:
            if len(group) == 1:
                group[0].fail(problem)
            else:  # one by one: a step can be repeated, and the others must not suffer
                for one in group:
                    self._step([one])
        else:
            self._draw(group, scores)

    def _draw(self, group: Sequence[Completion], scores: Array) -> None:
        drawn = draw(scores, [one.sampling for one in group], [one.chance() for one in group])
        # The maximum is NaN if any of them is.
        for one, token, row, best in zip(group, drawn, scores, scores.max(axis=1)):
            if isnan(best):
                one.fail(ModelError("the model's scores for the next token are not numbers"))
            else:
                one.add(token, row, self._generator.decode)

    def _fail_all(self, problem: Exception) -> None:
        with self._changed:
            failing = [*self._running, *self._waiting]
            self._waiting.clear()
            if self._is_closing:
                self._running = []
        for one in failing:
            if not one.is_over:
                one.fail(problem)
