"""Whether the gang makes progress: its best step, the stall deadline, and which reports are recorded."""

from __future__ import annotations

from oarlock.agent.lead.generation import Generation
from oarlock.agent.net.deadlines import Action, Deadlines
from oarlock.run.events import Event

STALL = "stall"  # a deadline


class Progress:
    """`limit`: seconds without a report after which `on_stall` is called; None is no limit."""

    def __init__(self, loop: Deadlines, limit: float | None, best_step: float, on_stall: Action) -> None:
        self._loop = loop
        self._limit = limit
        self._on_stall = on_stall
        self.best_step = best_step
        self.reports = False  # whether this program ever reported a step

    def add(self, report: Event, generation: Generation) -> bool:
        """Take one report in. Whether it belongs into the record; its mark `last` does not."""
        self.reports = True
        step = report.get("step")
        if isinstance(step, (int, float)) and step > self.best_step:
            self.best_step = step
            generation.progressed = True
        is_last = bool(report.pop("last", False))
        return generation.sampling.admits(report, is_last, self._loop.now())

    def expect_more(self) -> None:
        """Set the stall deadline, or move it."""
        if self._limit is not None:
            self._loop.after(STALL, self._limit, self._on_stall)

    def expect_none(self) -> None:
        """Suspend the stall deadline: the tasks are being ended."""
        self._loop.cancel(STALL)
