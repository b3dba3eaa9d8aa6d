"""How often a run may start again. Pure.

Progress fills the budget up again. A generation of a reporting program that made no progress
counts double, unless a signal killed it: the machine's fault, not the program's. The same error
twice in a row with no step in between is the program's own, and no third try will help.
"""

from __future__ import annotations

from dataclasses import dataclass

_QUICK = 60.0  # seconds; a program that ran longer did something before it failed


@dataclass(frozen=True)
class Loss:
    """One failed generation."""

    signature: str  # what failed, comparable with the next one
    signalled: bool
    progressed: bool
    reports: bool  # whether this program ever reported a step
    lived: float


class Budget:
    """The restarts left to a run, or to one task that restarts alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.left = limit
        self._last: str | None = None

    def refuses(self, loss: Loss) -> str | None:
        """Charge one loss. None: start again; otherwise why not."""
        if loss.progressed:
            self.left, self._last = self.limit, None
        hopeless = not loss.progressed and not loss.signalled
        if hopeless and loss.lived < _QUICK and loss.signature == self._last:
            return "it failed twice in the same way without a step in between"
        self._last = loss.signature
        cost = 2 if hopeless and loss.reports else 1
        if self.left < cost:
            is_doubled = self.left > 0
            why = (
                f", {self.left} is left, and a failure without a new step counts as two" if is_doubled else ""
            )
            return f"limits.restarts is {self.limit}{why}"
        self.left -= cost
        return None
