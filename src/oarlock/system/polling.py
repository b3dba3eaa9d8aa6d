"""Wait for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(ready: Callable[[], T | None], what: str, seconds: float | None, every: float = 0.05) -> T:
    """Call `ready` every `every` seconds and return its first true value.

    Raises TimeoutError ("no WHAT within N s") after `seconds`; None waits without a deadline. `ready` is
    called at least once, and once more after the deadline: a machine that stalls does not cause a timeout.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        is_late = deadline is not None and time.monotonic() > deadline
        found = ready()
        if found:
            return found
        if is_late:
            raise TimeoutError(f"no {what} within {seconds:g} s")
        time.sleep(every)
