"""A run as JSON lines, for other programs: its events as they are in the record."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.cli.output import complain, print_json_line
from oarlock.events import Event, RunState
from oarlock.watch import LogLine


class JsonLines:
    def show(self, state: RunState, happened: Sequence[Event], lines: Sequence[LogLine]) -> None:
        for event in happened:
            print_json_line(event)

    def say(self, text: str) -> None:
        complain(text)

    def close(self) -> None:
        pass
