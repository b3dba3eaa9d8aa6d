"""Waiting in tests: until it is so, with a deadline, saying what for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, seconds: float = 60, every: float = 0.1) -> T:
    """What `look` gives once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {seconds:g} s")
        time.sleep(every)
    return found
