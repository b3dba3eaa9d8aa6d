"""Runs one model: a thread takes all waiting requests as one batch and gives each request its own rows.

It never waits while there is work, and there is no timer: requests that arrive while the model runs form the
next batch. A failed batch is repeated one request at a time, so that a bad request spoils no other.

If a single request arrives at an idle model, the event loop computes it itself, provided that this is known
to take no longer than waking the thread and being woken by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Union

from oarlock.serving.batching.pace import Pace
from oarlock.serving.batching.waiting_requests import Waiting, WaitingRequest
from oarlock.serving.counters import Counters
from oarlock.serving.runtimes.runtime import ModelError, Runtime
from oarlock.serving.served import Overloaded
from oarlock.serving.settings import Settings

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

    Outcome = Union[dict[str, Array], BaseException]

_SHORTEST = 0.05  # seconds: a client that returns sooner only adds to the load
_AT_ONCE = 0.0002  # seconds that the event loop may compute; two thread switches take about as long


class Batcher:
    """One loaded model, its queue and its thread. `predict` is called in one event loop."""

    def __init__(self, runtime: Runtime, settings: Settings, counters: Counters, version: int = 1) -> None:
        self._runtime = runtime
        self._settings = settings
        self._counters = counters
        self._version = version
        self._is_batched = runtime.manifest.is_batched
        self._came: list[WaitingRequest] = []  # in this turn of the event loop
        self._waiting = Waiting()
        self._model = threading.Lock()  # held by the thread that computes
        self._running = 0  # rows in the model
        self.pace = Pace(settings.max_rows if self._is_batched else 1)
        self._thread = threading.Thread(target=self._work, name="oarlock-model", daemon=True)
        self._thread.start()

    async def predict(self, inputs: Mapping[str, Array], deadline: float | None = None) -> dict[str, Array]:
        """See `Served.predict`."""
        rows = self._rows(inputs)
        queued = self.pace.seconds(self.waiting + self._running)
        if queued > self._settings.queue:
            self._counters.add("refused_total")
            raise Overloaded(max(queued - self._settings.queue, _SHORTEST))
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[dict[str, Array]] = loop.create_future()
        seconds = self._settings.deadline if deadline is None else deadline
        self._came.append(WaitingRequest(inputs, rows, _kind(inputs), answer, time.monotonic() + seconds))
        if len(self._came) == 1:
            loop.call_soon(self._hand_over)  # after all other requests that have arrived by now
        timer = loop.call_later(seconds, _expire, answer, seconds)
        try:
            return await answer
        finally:
            timer.cancel()

    @property
    def waiting(self) -> int:
        """The number of rows that wait."""
        return self._waiting.rows + sum(one.rows for one in self._came)

    def close(self) -> None:
        """Compute what waits, then release the model."""
        self._queue()
        self._waiting.close()
        self._thread.join()
        self._runtime.close()

    def _hand_over(self) -> None:
        """Pass what arrived in one turn of the event loop to the thread, or compute it at once."""
        if (
            len(self._came) == 1
            and self._is_quick(self._came[0].rows)
            and self._model.acquire(blocking=False)
        ):
            try:
                alone, self._came = self._came, []
                began = time.monotonic()
                _resolve([(alone[0].answer, self._compute(alone, alone[0].rows)[0])])
                self._note(alone, alone[0].rows, began)
            finally:
                self._model.release()
        else:
            self._queue()

    def _is_quick(self, rows: int) -> bool:
        is_idle = not self._running and not self._waiting.rows
        return self._runtime.only_computes and is_idle and 0 < self.pace.seconds(rows) < _AT_ONCE

    def _queue(self) -> None:
        came, self._came = self._came, []
        for one in came:
            self._waiting.add(one)

    def _rows(self, inputs: Mapping[str, Array]) -> int:
        if not self._is_batched:
            return 1
        counts = {value.shape[0] if value.shape else -1 for value in inputs.values()}
        if len(counts) != 1 or -1 in counts:
            raise ModelError(f"its inputs differ in the number of rows: {sorted(counts)}")
        return int(counts.pop())

    def _work(self) -> None:
        while (taken := self._waiting.take(self.pace.rows(self._waiting.rows))) is not None:
            began = time.monotonic()
            self._running = rows = sum(one.rows for one in taken)
            with self._model:
                _deliver(taken, self._compute(taken, rows))
                self._running = 0
                with contextlib.suppress(Exception):  # a failing count must not end the thread
                    self._note(taken, rows, began)

    def _note(self, taken: Sequence[WaitingRequest], rows: int, began: float) -> None:
        seconds = time.monotonic() - began
        self.pace.note(rows, seconds)
        self._counters.observe("model_seconds", seconds)
        self._counters.observe("batch_rows", rows)
        self._counters.add("rows_total", rows, version=self._version)
        self._counters.set("queue_rows", self._waiting.rows)
        for one in taken:
            self._counters.observe("wait_seconds", began - one.came)
        if self._waiting.dropped:
            self._counters.add("dropped_total", self._waiting.dropped)
            self._waiting.dropped = 0

    def _compute(self, taken: Sequence[WaitingRequest], rows: int) -> list[Outcome]:
        try:
            if len(taken) == 1:
                return [self._run(taken[0].inputs, rows)]
            joined = _joined(taken)
            return list(_parted(self._run(joined, rows), taken, rows))
        except BaseException as problem:
            if len(taken) == 1:
                return [problem]
        return [self._alone(one) for one in taken]

    def _alone(self, request: WaitingRequest) -> Outcome:
        try:
            return self._run(request.inputs, request.rows)
        except BaseException as problem:
            return problem

    def _run(self, inputs: Mapping[str, Array], rows: int) -> dict[str, Array]:
        """Run in pieces if a single request has more rows than a batch may have."""
        most = self._settings.max_rows
        if rows <= most or not self._is_batched:
            return self._runtime.run(inputs)
        import numpy as np

        pieces = [
            self._runtime.run({name: value[begin : begin + most] for name, value in inputs.items()})
            for begin in range(0, rows, most)
        ]
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _kind(inputs: Mapping[str, Array]) -> tuple[object, ...]:
    return tuple((name, value.shape[1:], value.dtype) for name, value in sorted(inputs.items()))


def _joined(taken: Sequence[WaitingRequest]) -> dict[str, Array]:
    import numpy as np

    return {name: np.concatenate([one.inputs[name] for one in taken]) for name in taken[0].inputs}


def _parted(
    outputs: Mapping[str, Array], taken: Sequence[WaitingRequest], rows: int
) -> list[dict[str, Array]]:
    """Each request's rows. Raises ModelError if the model does not answer row by row."""
    for name, value in outputs.items():
        if not value.shape or value.shape[0] != rows:
            raise ModelError(f"{name} has the shape {value.shape} for {rows} rows")
    parts, begin = [], 0
    for one in taken:
        end = begin + one.rows
        parts.append({name: value[begin:end] for name, value in outputs.items()})
        begin = end
    return parts


def _deliver(taken: Sequence[WaitingRequest], outcomes: Sequence[Outcome]) -> None:
    """Wake the loop once for the whole batch."""
    loop = taken[0].answer.get_loop()
    pairs = [(one.answer, outcome) for one, outcome in zip(taken, outcomes)]
    with contextlib.suppress(RuntimeError):  # the loop is closed: no client waits
        loop.call_soon_threadsafe(_resolve, pairs)


def _resolve(pairs: Sequence[tuple[asyncio.Future[dict[str, Array]], Outcome]]) -> None:
    for answer, outcome in pairs:
        if answer.done():
            continue  # its client is gone, or it timed out
        if isinstance(outcome, BaseException):
            answer.set_exception(outcome if isinstance(outcome, Exception) else ModelError(repr(outcome)))
        else:
            answer.set_result(outcome)


def _expire(answer: asyncio.Future[dict[str, Array]], seconds: float) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError(f"no answer within {seconds:g} s"))
