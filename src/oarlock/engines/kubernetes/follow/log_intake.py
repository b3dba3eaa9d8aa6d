"""The pods of a run and their logs, on their way into its record: what the mirrors have in common.

A reader runs ahead of what the record has: its lines wait in a queue, and the mirror takes them.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Identity
from oarlock.engines.kubernetes.follow import pod_status
from oarlock.engines.kubernetes.follow.ledger import Ledger
from oarlock.engines.kubernetes.follow.pod_log import Position
from oarlock.engines.kubernetes.follow.pod_watch import Line, Reader, Watcher
from oarlock.errors import OarlockError

MOST = 64  # logs followed at a time
_TURN = 0.1  # seconds to wait for a line
_BATCH = 5000  # lines between two commits
_AWAY = 3.0  # seconds without an answer before the user is notified
_REFUSED = 30.0  # seconds for which a starting API server may refuse what it later allows


class LogIntake:
    """The watcher of a run's pods, and a reader for each log. `take` gets every line once."""

    def __init__(self, api: Api, run: Identity, ledger: Ledger, take: Callable[[Line], None]) -> None:
        self.watcher = Watcher(api, run)
        self.readers: dict[str, Reader] = {}
        self._lines: queue.Queue[Line] = queue.Queue(maxsize=4 * _BATCH)
        self._ledger = ledger
        self._take = take

    def begin(self) -> None:
        """Watch the pods, and wait for the first look at them."""
        self.watcher.start()
        self.watcher.has_seen.wait(30)

    def read(self, uids: Iterable[str], is_run_over: Callable[[], bool]) -> None:
        """Follow the logs of these pods, as far as they have one."""
        pods = self.watcher.pods
        alive = sum(not reader.is_over for reader in self.readers.values())
        for uid in uids:
            if uid in self.readers or alive >= MOST or uid not in pods:
                continue
            if not pod_status.has_started(pods[uid]):
                continue
            position = self._ledger.positions.setdefault(uid, Position())
            # The reader runs ahead of what is committed, so it has a position of its own.
            reader = Reader(self.watcher, uid, Position(**vars(position)), self._lines, is_run_over)
            self.readers[uid] = reader
            reader.start()
            alive += 1

    def drain(self) -> None:
        """Wait a moment for a line, and take what has come."""
        try:
            self._on_line(self._lines.get(timeout=_TURN))
            for _ in range(_BATCH):
                self._on_line(self._lines.get_nowait())
        except queue.Empty:
            pass

    def finish(self) -> None:
        """Take what is left."""
        while not self.is_empty:
            self._on_line(self._lines.get_nowait())

    @property
    def is_empty(self) -> bool:
        """Whether no line waits."""
        return self._lines.empty()

    def absence(self) -> diagnose.Problem | None:
        """Why the watcher cannot reach the cluster, once it lasts. Raises OarlockError if it is permanent."""
        error = self.watcher.problem
        if error is None:
            return None
        waited = time.monotonic() - self.watcher.since
        problem = diagnose.explain(error)
        if not error.is_transient and (error.status == 401 or waited > _REFUSED):
            raise OarlockError(f"{problem.what}; {problem.fix}")
        return problem if error.is_transient and waited > _AWAY else None

    def _on_line(self, line: Line) -> None:
        position = self._ledger.positions[line[0]]
        position.advance(line[2])
        position.restarts = self.readers[line[0]].position.restarts
        self._take(line)
