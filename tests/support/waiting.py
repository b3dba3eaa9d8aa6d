"""Waiting in tests: until a condition holds, with a deadline, and a message that says what did not happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    look: Callable[[], T | None],
    what: str,
    seconds: float = 300,
    every: float | None = None,
    evidence: Callable[[], str] | None = None,
) -> T:
    """Return what `look` gives once that is true. `evidence` is added to the message of a failure.

    Looking at a cluster costs processor time that its pods need: unless told how often, look for a fifth of
    the time at most.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        found = look()
        if found:
            return found
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"no {what} within {seconds:g} s" + (f": {evidence()}" if evidence else ""))
        time.sleep(every or min(max(4 * (now - began), 0.05), 1.0))
