"""A run as JSON lines for other programs: its events, unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.records.watch import LogLine
from oarlock.run.events import Event
from oarlock.run.run_state import RunState
from oarlock.screens.output import complain, print_json_line


class JsonLines:
    """A screen that prints one JSON object per event."""

    def show(self, state: RunState, happened: Sequence[Event], lines: Sequence[LogLine]) -> None:
        """Print each new event as a line."""
        for event in happened:
            print_json_line(event)

    def say(self, text: str) -> None:
        """Print a line of Oarlock's own on stderr."""
        complain(text)

    def close(self) -> None:
        """Do nothing: every line is complete."""
