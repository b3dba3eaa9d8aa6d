"""The merged reports of a task: the newest value under each name, within bounds.

A report repeats recent values, because the record keeps only some reports. It does not repeat all of them
forever: a program that names a new metric at every step would fill the record.
"""

from __future__ import annotations

from oarlock.run.observed import source_of
from oarlock.run.run_events import Event

MOST = 100  # names
_REPEATED = 30.0  # seconds; the record keeps at least one report every ten seconds


class Metrics:
    """The metrics of one task, each with the time of its last value."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}  # name -> when it was last reported
        self._values: Event = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, report: Event, now: float) -> int:
        """Merge a report. Returns how many names were dropped because there were too many."""
        if source_of(report) != source_of(self._values):
            self._said, self._values = {}, {}  # another source counts steps of its own
        dropped = 0
        for name, value in report.items():
            if name in self._values or len(self._values) < MOST:
                self._values[name], self._said[name] = value, now
            else:
                dropped += 1
        return dropped

    def newest(self, now: float) -> Event:
        """The values that were reported in the last `_REPEATED` seconds."""
        return {name: value for name, value in self._values.items() if now - self._said[name] <= _REPEATED}

    def all(self) -> Event:
        """All values, however old, for the task's last report."""
        return dict(self._values)
