"""Feeds an evaluator whose machine cannot see the leader's folder: fetches checkpoints as they appear.

An evaluator that follows gets all unscored checkpoints, oldest first; any other evaluator gets the newest.
What it no longer needs is deleted here. A thread does this. It asks the leading agent every second, and asks
again if there is no answer. If retention deletes a checkpoint during its transfer, the connection breaks, and
the next answer no longer names it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from oarlock.agent.protocol import wire
from oarlock.agent.snapshots.transfer import Getting
from oarlock.checkpoints.store import Store

_LOOK = 1.0  # seconds between two questions
_AHEAD = 2  # checkpoints that wait here to be scored: the disk of a pod is small


class EvaluatorFeed:
    """Works from `start` to `close`."""

    def __init__(self, getting: Getting, folder: str) -> None:
        self._getting = getting
        self._store = Store(folder)
        self._is_over = threading.Event()
        self._wake = threading.Event()
        self.is_followed = False  # the evaluator scores all checkpoints in order
        self._asked = 0  # how often the leading agent was asked
        self._complete = 0  # the question after which nothing was missing here
        self._needed: int | None = None

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._work, name="oarlock-feed", daemon=True).start()

    def close(self) -> None:
        """End the thread after the current transfer."""
        self._is_over.set()
        self._wake.set()

    def is_complete(self) -> bool:
        """Whether everything that is left to score is here. Training has ended when this is first asked, and
        only the leading agent's later answers count."""
        if self._needed is None:
            self._needed = self._asked + 1
            self._wake.set()
        return self._complete >= self._needed

    def resume(self) -> None:
        """Start over: another generation trains."""
        self._needed = None

    def _work(self) -> None:
        while not self._is_over.is_set():
            self._wake.wait(_LOOK)
            self._wake.clear()
            number = self._asked = self._asked + 1
            try:
                if self._look():
                    self._complete = number
            except (OSError, ValueError, wire.WireError):
                pass  # the leading agent is busy or moving: ask again later

    def _look(self) -> bool:
        """Fetch one missing checkpoint. Returns whether none was missing."""
        unscored = self._getting.unscored()
        wanted = unscored[:_AHEAD] if self.is_followed else unscored[-1:]
        self._forget(unscored if self.is_followed else wanted)
        here = set(self._store.names())
        missing = [name for name in wanted if name not in here]
        if missing:
            self._getting.receive(missing[0], is_hurried=False)
            self._wake.set()  # another may be missing
        return all(name in here for name in unscored) or not self.is_followed

    def _forget(self, needed: Sequence[str]) -> None:
        """Free disk space, but keep the newest: a State that is created now starts with it."""
        newest_first = self._store.names()
        for checkpoint in self._store.checkpoints():
            if checkpoint.name not in needed and checkpoint.name != newest_first[0]:
                self._store.delete(checkpoint)
