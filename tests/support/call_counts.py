"""What a function calls: a measure of its cost that no other process on the machine can change."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(function: Callable[[], object]) -> list[str]:
    """The names of all functions that run, in order: `function` itself, then what it calls."""
    called: list[str] = []

    def note(frame: FrameType, event: str, of: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)
        elif event == "c_call":
            called.append(of.__name__)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return called[:-1]  # the last is setprofile
