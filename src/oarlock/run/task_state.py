"""What is known of one task from the run's events, and how it failed. Pure; travels into pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oarlock.run.run_events import Event

_SMOOTHED_OVER = 20.0  # seconds, or three reports if these take longer
_SHORTEST = 1e-6  # seconds; nothing is divided by less


@dataclass
class TaskState:
    """One task's state, according to the run's events."""

    name: str
    state: str = "pending"  # pending, running, finished, failed, killed
    pid: int | None = None
    code: int | None = None
    starts: int = 0
    step: int | None = None
    total: int | None = None
    rate: float | None = None  # steps per second
    measured: float = 0.0  # over this many seconds
    reported: float | None = None  # when it last reported
    busy: float | None = None  # the share of its time in which it does not wait for others
    observed: str | None = None  # which hook saw its progress; None: it reports itself
    metrics: dict[str, Any] = field(default_factory=dict)
    gpu: dict[str, Any] = field(default_factory=dict)  # the last readings of its GPUs; empty: it uses none

    @property
    def eta(self) -> float | None:
        """Seconds to the last step at the current rate."""
        if not self.rate or self.total is None or self.step is None:
            return None
        return max(0, self.total - self.step) / self.rate

    def note_total(self, total: int | None, step: int | None) -> None:
        """Drop the rate if the total changes, because something else is counted: an ingest fetches bytes,
        then makes examples of them."""
        is_back = step is not None and self.step is not None and step < self.step
        if is_back and total != self.total:
            self.rate, self.measured, self.reported = None, 0.0, None
        self.total = total

    def note_source(self, source: str | None, step: int | None) -> None:
        """Drop what another source reported: it counted other steps. So does the next progress bar."""
        is_next = source is not None and step is not None and self.step is not None and step < self.step
        if source != self.observed or is_next:
            self.observed, self.step, self.total, self.rate = source, None, None, None
            self.measured, self.reported, self.metrics = 0.0, None, {}

    def measure(self, step: int, now: float) -> None:
        """Smooth the rate: one slow step (a checkpoint, an epoch's end) must not swing the ETA. Nor must a
        burst (JAX runs ahead, then reports 30 steps in a tenth of a second): a short time counts little."""
        seconds = 0.0 if self.reported is None else now - self.reported
        if self.step is not None and step > self.step and seconds > _SHORTEST:
            self.measured = min(self.measured + seconds, max(_SMOOTHED_OVER, 3 * seconds))
            share = seconds / self.measured
            self.rate = (1 - share) * (self.rate or 0) + share * (step - self.step) / seconds
        self.step = step


@dataclass
class Failure:
    """Why a task failed. `where` is file:line in the user's own code."""

    task: str
    reason: str
    type: str | None = None
    message: str | None = None
    where: str | None = None
    refusal: str | None = None  # why no restart followed

    @classmethod
    def of(cls, event: Event) -> Failure | None:
        """The failure in a `restart` or `end` event, if a task failed."""
        if not event.get("task"):
            return None
        return cls(
            task=event["task"],
            reason=event.get("reason", ""),
            type=event.get("type"),
            message=event.get("message"),
            where=event.get("where"),
            refusal=event.get("refusal"),
        )
