"""A run as JSON lines for other programs: its events, unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oarlock.records.log_blocks import Block
from oarlock.run.run_events import Event
from oarlock.run.run_state import RunState
from oarlock.screens.output import complain, print_json_line


class JsonLines:
    """A screen that prints one JSON object per event."""

    def show(
        self,
        state: RunState,
        happened: Sequence[Event],
        output: Sequence[Block],
        unfinished: Mapping[str, bytes] | None = None,
    ) -> None:
        """Print each new event as a line."""
        for event in happened:
            print_json_line(event)

    def say(self, text: str) -> None:
        """Print a line of Oarlock's own on stderr."""
        complain(text)

    def close(self) -> None:
        """Do nothing: every line is complete."""
