"""Waiting in tests: until a condition holds, with a deadline, and a message that says what did not happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    look: Callable[[], T | None],
    what: str,
    seconds: float = 60,
    every: float = 0.05,
    evidence: Callable[[], str] | None = None,
) -> T:
    """Return what `look` gives once that is true. `evidence` is added to the message of a failure."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {seconds:g} s" + (f": {evidence()}" if evidence else ""))
        time.sleep(every)
    return found
