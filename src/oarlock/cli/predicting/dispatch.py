"""Send the batches of one input to several servers of one model, and yield the answers in input order.

A batch is sent until it is answered: if its server is lost, it goes to the next server that is free. One
thread reads the input, so that an answer appears while the next example is still being written; each server
has a thread that sends batches to it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from oarlock.cli.predicting.model_client import Unanswered
from oarlock.errors import OarlockError
from oarlock.system.polling import wait_for

B = TypeVar("B")  # a batch
A = TypeVar("A")  # its answer

_TRIES = 4  # how often a batch may be lost: the batch itself may crash its server
_AHEAD = 8  # answers per server that may wait for an earlier one
_POLL = 0.2  # seconds
# Seconds: Python notices a signal that comes just before the main thread waits only when it wakes up.
_BLINK = 0.2
_PATIENCE = 1800.0  # seconds for a server to start, or to return: an image may have to be pulled


class Lane(Protocol):
    """One server, which gets one batch after another."""

    def is_ready(self) -> bool:
        """Whether it answers. Raises OarlockError if it never will."""
        ...

    def renew(self) -> None:
        """Connect again: the server behind the connection may be gone."""
        ...


L = TypeVar("L", bound=Lane)


def from_any(lanes: Sequence[L], ask: Callable[[L], A]) -> A:
    """Ask the first server that answers. Raises OarlockError if none will."""
    for _ in range(_TRIES - 1):
        try:
            return ask(_first_ready(lanes))
        except Unanswered:
            continue
    return ask(_first_ready(lanes))


def _first_ready(lanes: Sequence[L]) -> L:
    problems: dict[int, OarlockError] = {}

    def ready() -> L | None:
        for number, lane in enumerate(lanes):
            try:
                if number not in problems and lane.is_ready():
                    return lane
            except OarlockError as problem:
                problems[number] = problem
        if len(problems) == len(lanes):
            raise problems[0]
        return None

    try:
        return wait_for(ready, "server", _PATIENCE, every=_POLL)
    except TimeoutError:
        raise OarlockError(f"no server has loaded the model within {_PATIENCE:g} s") from None


def answered(lanes: Sequence[L], batches: Iterable[B], ask: Callable[[L, B], A]) -> Iterator[tuple[B, A]]:
    """Yield each batch with its answer, in order. An error while reading or asking is raised in its place."""
    work: _Work[L, B, A] = _Work(lanes, batches, ask)
    threading.Thread(target=work.read, name="examples", daemon=True).start()
    for lane in lanes:
        threading.Thread(target=work.on_lane, args=(lane,), name="predict", daemon=True).start()
    try:
        yield from work.answers()
    finally:
        work.end()


@dataclass
class _Task(Generic[B]):
    number: int
    batch: B
    lost: int = 0  # how often


class _Work(Generic[L, B, A]):
    """The batches and their answers. All threads share it, under one lock."""

    def __init__(self, lanes: Sequence[L], batches: Iterable[B], ask: Callable[[L, B], A]) -> None:
        self._lanes = len(lanes)
        self._most = _AHEAD * len(lanes)
        self._batches = iter(batches)
        self._ask = ask
        self._changed = threading.Condition()
        self._waiting: deque[_Task[B]] = deque()
        self._answers: dict[int, tuple[B, A] | BaseException] = {}
        self._read = 0  # batches read so far
        self._given = 0  # answers yielded so far
        self._is_read = False  # the input has ended
        self._is_open = True
        self._problem: OarlockError | None = None  # why no server is left

    def answers(self) -> Iterator[tuple[B, A]]:
        """Yield each batch and its answer as soon as the answer is there."""
        while True:
            with self._changed:
                while not (self._given in self._answers or self._is_done()):
                    if self._problem is not None:
                        raise self._problem
                    self._changed.wait(_BLINK)
                if self._is_done():
                    return
                found = self._answers.pop(self._given)
                self._given += 1
                self._changed.notify_all()  # there is room for another batch
            if isinstance(found, BaseException):
                raise found
            yield found

    def read(self) -> None:
        """Read the input, in a thread of its own: a batch for each free server."""
        while True:
            with self._changed:
                while self._is_open and not self._has_room():
                    self._changed.wait()
                if not self._is_open:
                    return
            self._read_one()
            if self._is_read:
                return

    def on_lane(self, lane: L) -> None:
        """Send batches to one server, in the thread of that server."""
        try:
            self._wait(lane)
            while (task := self._take()) is not None:
                if task.lost and not self._may_retry(lane, task):
                    continue
                try:
                    self._put(task.number, (task.batch, self._ask(lane, task.batch)))
                except Unanswered as problem:
                    self._lose(task, problem)
                    self._wait(lane)
                except BaseException as problem:
                    self._put(task.number, problem)
        except OarlockError as problem:
            self._leave(problem)

    def end(self) -> None:
        """Stop all threads: the caller wants no more answers."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _has_room(self) -> bool:
        """Whether a server is free, and not too many answers wait for an earlier one."""
        asked = self._read - self._given - len(self._answers)
        return not self._is_read and asked < self._lanes and self._read < self._given + self._most

    def _is_done(self) -> bool:
        return self._is_read and self._given == self._read

    def _read_one(self) -> None:
        batch: B | None = None
        problem: Exception | None = None
        try:
            batch = next(self._batches)
        except StopIteration:
            pass
        except Exception as found:
            problem = found
        with self._changed:
            if batch is not None:
                self._waiting.append(_Task(self._read, batch))
            elif problem is not None:
                self._answers[self._read] = problem  # after the answers before it
            self._read += batch is not None or problem is not None
            self._is_read = batch is None
            self._changed.notify_all()

    def _wait(self, lane: L) -> None:
        """Wait until the server answers or is no longer needed."""
        try:
            wait_for(lambda: not self._is_open or lane.is_ready(), "server", _PATIENCE, every=_POLL)
        except TimeoutError:
            raise OarlockError(f"a model server has not answered for {_PATIENCE:g} s") from None

    def _take(self) -> _Task[B] | None:
        with self._changed:
            while self._is_open and not self._waiting:
                self._changed.wait()
            return self._waiting.popleft() if self._is_open else None

    def _put(self, number: int, answer: tuple[B, A] | BaseException) -> None:
        with self._changed:
            self._answers[number] = answer
            self._changed.notify_all()

    def _lose(self, task: _Task[B], problem: Unanswered) -> None:
        """Return a batch to the queue whose server was lost before it answered."""
        task.lost += 1
        if task.lost == _TRIES:
            self._put(task.number, OarlockError(f"{problem} (asked {_TRIES} times)"))
            return
        self._return(task)

    def _may_retry(self, lane: L, task: _Task[B]) -> bool:
        """Whether this server answers, for a batch that was lost. If the server is lost as well, the batch
        waits for another one, and does not count as lost a second time."""
        lane.renew()
        try:
            is_ready = lane.is_ready()
        except OarlockError:
            self._return(task)
            raise
        if not is_ready:
            self._return(task)
            self._wait(lane)
        return is_ready

    def _return(self, task: _Task[B]) -> None:
        with self._changed:
            self._waiting.appendleft(task)  # later answers may wait for this one
            self._changed.notify_all()

    def _leave(self, problem: OarlockError) -> None:
        """Remove a server that is gone for good. After the last one, the missing answers fail too."""
        with self._changed:
            self._lanes -= 1
            self._problem = None if self._lanes else problem
            self._changed.notify_all()
