"""Whether the gang makes progress: its best step, the stall deadline, and which reports are recorded."""

from __future__ import annotations

from oarlock.agent.lead.phases.generation import Generation
from oarlock.agent.net.deadlines import Action, Deadlines
from oarlock.run.observed import expects_more, knows_its_step, source_of
from oarlock.run.run_events import Event
from oarlock.run.run_state import RunState

STALL = "stall"  # a deadline


class GangProgress:
    """`limit`: `on_stall` is called after this many seconds without a report; None means never. `before`:
    what an earlier agent of this run recorded."""

    def __init__(self, loop: Deadlines, limit: float | None, before: RunState, on_stall: Action) -> None:
        self._loop = loop
        self._limit = limit
        self._on_stall = on_stall
        tasks = before.tasks.values()
        self.best_step: float = max(
            (task.step or 0 for task in tasks if knows_its_step(task.observed)), default=0
        )
        self.reports = False  # whether this program ever reported a step

    def add(self, report: Event, generation: Generation) -> bool:
        """Take in one report. Returns whether to record it, without its mark `last`."""
        source = source_of(report)
        # A failure without a new step costs double only if the program has reported steps.
        self.reports |= source is None
        step = report.get("step") if knows_its_step(source) else None
        if isinstance(step, (int, float)) and step > self.best_step:
            self.best_step = step
            generation.progressed = True
        is_last = bool(report.pop("last", False))
        return generation.sampling.admits(report, is_last, self._loop.now())

    def expect_after(self, report: Event) -> None:
        """Move the stall deadline. A training loop observed by hooks is held to it until the loop ends. A
        counter, such as a progress bar, promises nothing."""
        if not knows_its_step(source_of(report)):
            return
        if not expects_more(report):
            self.expect_none()
        elif self._limit is not None:
            self._loop.after(STALL, self._limit, self._on_stall)

    def expect_none(self) -> None:
        """Suspend the stall deadline: the tasks are being ended."""
        self._loop.cancel(STALL)
