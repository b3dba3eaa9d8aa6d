"""The requests that wait for one model, in the order of arrival. One thread takes from it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array


@dataclass(eq=False)
class WaitingRequest:
    """One request: its rows, and the future of the event loop that awaits them."""

    inputs: Mapping[str, Array]
    rows: int
    kind: tuple[Any, ...]  # only requests of the same kind share a batch
    answer: asyncio.Future[dict[str, Array]]
    deadline: float  # of time.monotonic()
    came: float = field(default_factory=time.monotonic)

    @property
    def is_wanted(self) -> bool:
        """Whether a client still waits for it."""
        return not self.answer.done() and time.monotonic() < self.deadline


class Waiting:
    """The loop's thread adds and the model's thread takes; neither ever holds up the other."""

    def __init__(self) -> None:
        self._new: SimpleQueue[WaitingRequest | None] = SimpleQueue()
        self._kept: deque[WaitingRequest] = deque()
        self._added = 0  # rows; only the loop's thread writes it
        self._taken = 0  # rows; only the model's thread writes it
        self._is_closed = False
        self.dropped = 0  # requests that no client waited for anymore

    @property
    def rows(self) -> int:
        """The number of rows that wait."""
        return self._added - self._taken

    def add(self, request: WaitingRequest) -> None:
        """Add a request at the end."""
        self._added += request.rows
        self._new.put(request)

    def close(self) -> None:
        """Let `take` return None once everything is taken."""
        self._new.put(None)

    def take(self, limit: int) -> list[WaitingRequest] | None:
        """Return the next requests of one kind, at most `limit` rows or one request; None at the end.

        Waits only if there are none. Requests that no client waits for are dropped.
        """
        while True:
            self._collect()
            taken = self._next(limit)
            if taken:
                return taken
            if self._is_closed:
                return None

    def _collect(self) -> None:
        """Move new requests to the taking side; wait for one if there is nothing else to do."""
        if not self._kept and not self._is_closed:
            self._keep(self._new.get())
        while True:
            try:
                self._keep(self._new.get_nowait())
            except Empty:
                return

    def _keep(self, request: WaitingRequest | None) -> None:
        if request is None:
            self._is_closed = True
        else:
            self._kept.append(request)

    def _next(self, limit: int) -> list[WaitingRequest]:
        taken: list[WaitingRequest] = []
        others: list[WaitingRequest] = []
        rows = 0
        while self._kept and rows < limit:
            request = self._kept.popleft()
            if not request.is_wanted:
                self.dropped += 1
                self._taken += request.rows
            elif not taken or (request.kind == taken[0].kind and rows + request.rows <= limit):
                taken.append(request)
                rows += request.rows
            else:
                others.append(request)
        self._kept.extendleft(reversed(others))
        self._taken += rows
        return taken
