"""What the uploader and the downloader have in common: both get orders and answer in lines of JSON.

Each is its own process. Only they load object storage, and whatever happens to them, the agent and its tasks
continue.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from oarlock.agent.snapshots.snapshot_messages import LINES, ORDERS, Line, Order
from oarlock.checkpoints import redact
from oarlock.system.backoff import doubled

_REQUEST = 60.0  # seconds for a part; doubled after every failure
_LONGEST_REQUEST = 1920.0

_writing = threading.Lock()


def say(line: Line) -> None:
    """Write one line to the agent, from any thread."""
    with _writing:
        print(json.dumps(LINES.to_data(line)), flush=True)


def next_order() -> Order | None:
    """The agent's next order; None if the agent has closed the line."""
    line = sys.stdin.readline()
    return ORDERS.from_data(json.loads(line)) if line else None


def end_with_agent() -> None:
    """From now on, end when the agent closes the line. No more orders can be read, and the process must exit
    with `os._exit`: a thread that waits for input makes an ordinary exit noisy."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def request_timeout(failures: int) -> float:
    """Seconds for one request after that many failures: a slow line gets more time with every attempt."""
    return doubled(_REQUEST, _LONGEST_REQUEST, failures)


class Troubles:
    """The store's errors that were reported already: each kind once, until something succeeds."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def is_new(self, error: BaseException) -> bool:
        """Whether this kind of error is not reported yet. It counts as reported after this call."""
        kind = redact.kind(error)
        is_new = kind not in self._kinds
        self._kinds.add(kind)
        return is_new

    def clear(self) -> bool:
        """Drop all of them. Returns whether there were any."""
        had_any = bool(self._kinds)
        self._kinds.clear()
        return had_any
