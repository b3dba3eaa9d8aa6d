"""A thread that writes for the agent, so that neither a hanging disk nor an unread pipe stops its loop.

Jobs run in the order in which they are queued. As long as writing makes progress, a caller that queues too
much waits for room, as it would for a slow disk. Once nothing has moved for a while, jobs that may be lost
are refused instead, and no caller waits until everything is written.
"""

from __future__ import annotations

import atexit
import signal
import threading
from collections import deque
from collections.abc import Callable

_MOST = 16 << 20  # bytes that may wait
_MOMENT = 0.1  # seconds that a caller waits for an event to be written
_FAREWELL = 15.0  # seconds to finish when the process ends


class Outlet:
    """`patience`: seconds that a caller waits for room."""

    def __init__(self, patience: float, most: int = _MOST) -> None:
        self.patience = patience
        self.most = most
        self.is_stalled = False  # there has been no room for too long
        self._jobs: deque[tuple[Callable[[], None], int]] = deque()
        self._size = 0
        self._is_late = False  # an event was not written within _MOMENT
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], None], size: int = 0, *, must: bool = True) -> bool:
        """Queue a job, which must not raise. Returns False if there is no room and it is not a `must`."""
        with self._changed:
            if not must and not self._has_room(size):
                patience = 0.0 if self.is_stalled else self.patience
                if not self._changed.wait_for(lambda: self._has_room(size), patience):
                    self.is_stalled = True
                    return False
            self._jobs.append((job, size))
            self._size += size
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="oarlock-outlet", daemon=True)
                self._thread.start()
                atexit.register(self.flush, _FAREWELL)
        return True

    def settle(self) -> None:
        """Wait briefly until everything is written, but not again and again while it hangs."""
        if not self._is_late:
            self._is_late = not self.flush(_MOMENT)

    def flush(self, seconds: float) -> bool:
        """Wait at most that long. Returns whether everything is written."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs, seconds)

    def _has_room(self, size: int) -> bool:
        return not self._jobs or self._size + size <= self.most

    def _work(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the loop handles signals
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._jobs))
                job, size = self._jobs[0]
            job()
            with self._changed:
                self._jobs.popleft()
                self._size -= size
                if not self._jobs:
                    self.is_stalled = self._is_late = False
                self._changed.notify_all()
