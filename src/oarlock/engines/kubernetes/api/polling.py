"""Wait for the cluster: ask again and again, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

INTERVAL = 0.1  # seconds between two attempts


def attempts(seconds: float, interval: float = INTERVAL) -> Iterator[bool]:
    """Yield before each attempt until the deadline has passed; true for the last attempt."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield False
        time.sleep(interval)
    yield True


def wait_until(is_true: Callable[[], bool], seconds: float, interval: float = INTERVAL) -> bool:
    """Wait until the condition holds; false if it does not hold in time."""
    return any(is_true() for _ in attempts(seconds, interval))
