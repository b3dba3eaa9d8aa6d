"""Stands in for the event loop: no time passes, and a deadline is over when the test says so."""

from __future__ import annotations

from collections.abc import Callable


class StillLoop:
    def __init__(self) -> None:
        self.clock = 1000.0
        self.deadlines: dict[str, tuple[float, Callable[[], None]]] = {}

    def now(self) -> float:
        return self.clock

    def time(self) -> float:
        return self.clock

    def after(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self.deadlines[name] = (seconds, action)

    def cancel(self, name: str) -> None:
        self.deadlines.pop(name, None)

    def expects(self, name: str) -> bool:
        return name in self.deadlines

    def passes(self, name: str) -> None:
        """That deadline is over; a deadline that is not set passes unnoticed."""
        seconds, action = self.deadlines.pop(name, (0.0, lambda: None))
        self.clock += max(0.0, seconds)
        action()
