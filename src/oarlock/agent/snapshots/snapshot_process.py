"""What the uploader and the downloader have in common: both take orders and answer in lines of JSON.

Each is a process of its own: it alone loads object storage, and whatever happens to it, the agent and its
tasks continue.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from oarlock.agent.snapshots.snapshot_messages import LINES, ORDERS, Line, Order
from oarlock.checkpoints import redact
from oarlock.system.backoff import doubled

_REQUEST = 60.0  # seconds for a part, and twice as long after every failure
_LONGEST_REQUEST = 1920.0

_writing = threading.Lock()


def say(line: Line) -> None:
    """Write one line to the agent, from any thread."""
    with _writing:
        print(json.dumps(LINES.to_data(line)), flush=True)


def next_order() -> Order | None:
    """The agent's next order; None when the agent has closed the line."""
    line = sys.stdin.readline()
    return ORDERS.from_data(json.loads(line)) if line else None


def end_with_agent() -> None:
    """End when the agent closes the line, from now on. No more orders can be taken, and the process must
    leave with `os._exit`: a thread that waits for input keeps an ordinary exit from being quiet."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def request_timeout(failures: int) -> float:
    """Seconds for one request after that many failures: a slow line gets more time at every attempt."""
    return doubled(_REQUEST, _LONGEST_REQUEST, failures)


class Troubles:
    """Errors of the store that were reported already: each kind once, until something succeeds."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def is_new(self, error: BaseException) -> bool:
        """Whether no such error was reported yet. From now on one was."""
        kind = redact.kind(error)
        is_new = kind not in self._kinds
        self._kinds.add(kind)
        return is_new

    def clear(self) -> bool:
        """Forget them all. Whether there were any."""
        had_any = bool(self._kinds)
        self._kinds.clear()
        return had_any
