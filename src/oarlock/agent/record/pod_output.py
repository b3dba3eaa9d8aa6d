"""Prints the record on a pod's standard output, for clients. A thread prints: no reader stalls a loop."""

from __future__ import annotations

import os
import select
from functools import partial

from oarlock.agent.record import pod_lines
from oarlock.run import run_events
from oarlock.system.writer_thread import Outlet

PATIENCE = 1.5  # seconds that the loop waits if the reader of standard output accepts nothing


class Echo:
    """Prints the record on standard output, as lines of `pod_lines`."""

    def __init__(self, leads: bool, out: int = 1) -> None:
        self.leads = leads
        self.outlet = Outlet(PATIENCE)
        self._out = out
        self._count = 0  # events printed
        self._record = 0.0

    def replay(self, past: list[run_events.Event]) -> None:
        """Print the past events of a record, for readers that missed them, but only the latest reports."""
        latest = {event["task"]: number for number, event in enumerate(past) if event["kind"] == "report"}
        for number, event in enumerate(past):
            if event["kind"] != "report" or latest[event["task"]] == number:
                self.event(event)
            else:
                self._count += 1

    def event(self, event: run_events.Event) -> None:
        """Print an event."""
        self._count += 1
        self._record = self._record or event["t"]
        self.write(pod_lines.event(self._count, self._record, event), must=event["kind"] != "report")

    def write(self, data: bytes, must: bool = False) -> bool:
        """Print whole lines. Returns False if they were dropped; with `must` they never are."""
        return self.outlet.put(partial(write_all, self._out, data), len(data), must=must)


def write_all(out: int, data: bytes) -> None:
    """Write all of it, however long that takes. Give up if there is no reader any more."""
    while data:
        try:
            data = data[os.write(out, data) :]
        except BlockingIOError:  # another process that shares it made it nonblocking
            select.select([], [out], [])
        except OSError:
            return
