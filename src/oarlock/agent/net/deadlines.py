"""What the parts of an agent that do no I/O need from the event loop: named deadlines, and the time. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Action = Callable[[], None]


class Deadlines(Protocol):
    """`loop.Loop` is the real one; in tests, time stands still."""

    def now(self) -> float:
        """Seconds on a clock that never goes backward."""

    def time(self) -> float:
        """Seconds since the epoch, as events carry them."""

    def after(self, name: str, seconds: float, action: Action) -> None:
        """Call `action` once, later. Setting a deadline again moves it."""

    def cancel(self, name: str) -> None:
        """Remove that deadline, whether or not it is set."""

    def expects(self, name: str) -> bool:
        """Whether that deadline is set."""
