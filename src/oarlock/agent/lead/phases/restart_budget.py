"""How often a run may restart. Pure.

Progress refills the budget. A generation of a reporting program that made no progress counts double, unless a
signal killed it: the machine's fault, not the program's. The same error twice in a row with no step in
between is the program's own, and no third try will help. A GPU that runs out of memory gets one more try,
because another process may have held it, but not a second one without a new step.
"""

from __future__ import annotations

from oarlock.run.quick_dataclass import dataclass

DOUBLED = "a failure without a new step counts as two"
_QUICK = 60.0  # seconds; a program that ran longer did something before it failed


@dataclass(frozen=True)
class Loss:
    """One failed generation."""

    signature: str  # what failed, to compare with the next failure
    signalled: bool
    progressed: bool
    reports: bool  # whether this program ever reported a step
    lived: float
    exhausted: bool = False  # a GPU ran out of memory


class Budget:
    """The restarts left to a run, or to one task that restarts alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.left = limit
        self._was_doubled = False  # the last failure counted as two
        self._had_doubles = False  # one has counted as two since the budget was full
        self._last: str | None = None

    def refuses(self, loss: Loss) -> str | None:
        """Charge one loss. Returns None for a restart, otherwise why there is none."""
        if loss.progressed:
            self.left, self._last, self._had_doubles = self.limit, None, False
        hopeless = not loss.progressed and not loss.signalled
        if hopeless and loss.exhausted and loss.signature == self._last:
            return "the memory of a GPU ran out twice without a new step in between"
        if hopeless and loss.lived < _QUICK and loss.signature == self._last:
            return "it failed twice in the same way without a step in between"
        self._last = loss.signature
        self._was_doubled = hopeless and loss.reports
        cost = 2 if self._was_doubled else 1
        if self.left < cost:
            return f"limits.restarts is {self.limit}{self._used()}"
        self.left -= cost
        self._had_doubles |= self._was_doubled
        return None

    @property
    def event_fields(self) -> dict[str, bool]:
        """What a `restart` event says about the last charge, besides the restarts left."""
        return {"doubled": True} if self._was_doubled else {}

    def _used(self) -> str:
        """How the restarts were used: the user may have seen fewer than the limit."""
        if self.left:
            return f", {self.left} is left, and {DOUBLED}"
        if not self.limit:
            return ""
        used = "it is" if self.limit == 1 else f"all {self.limit} are"
        return f", and {used} used up" + (f": {DOUBLED}" if self._had_doubles else "")
