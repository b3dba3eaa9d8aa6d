"""How long to wait before the next attempt: twice as long after every failure, up to a limit, with jitter.

The jitter keeps many processes that failed together from retrying together.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_MOST_DOUBLINGS = 32


class Backoff:
    """Counts failures in a row and turns them into waits."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self.failures = 0

    def failed(self) -> float:
        """Count a failure. Returns the seconds to wait before the next attempt."""
        wait = doubled(self._first, self._longest, self.failures) * random.uniform(0.5, 1.5)
        self.failures += 1
        return min(wait, self._longest)

    def succeeded(self) -> None:
        """Start again from the shortest wait."""
        self.failures = 0


def retry(
    attempt: Callable[[], T],
    errors: type[Exception] | tuple[type[Exception], ...],
    seconds: float,
    pause: tuple[float, float],
) -> T:
    """Call `attempt` until it raises none of `errors`. An error after `seconds` is raised.

    Sleeps between two attempts, for a random time between the two bounds of `pause`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except errors:
            if time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(*pause))


def doubled(first: float, longest: float, times: int) -> float:
    """`first`, doubled that many times, at most `longest`."""
    return min(first * 2.0 ** min(times, _MOST_DOUBLINGS), longest)
