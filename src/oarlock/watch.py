"""Following a run on this machine: its events and its tasks' lines, from the files its agent writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from oarlock import events
from oarlock.runs import RunFolder

_POLL = 0.05


@dataclass(frozen=True)
class LogLine:
    time: str  # as in the file: ISO 8601, UTC
    generation: int
    task: str
    text: str


class Tail:
    """The complete lines that a growing file has got since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._rest = b""

    def lines(self) -> list[bytes]:
        if self._file is None:
            try:
                self._file = self.path.open("rb")
            except FileNotFoundError:
                return []
        *complete, self._rest = (self._rest + self._file.read()).split(b"\n")
        return complete

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Watch:
    """A run as it goes on: `look` gives what is new, `follow` looks until the run has ended."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.state = events.RunState(run.name)
        self._events = Tail(run.path / "events.jsonl")
        self._logs: dict[tuple[int, str], Tail] = {}

    def look(self) -> tuple[list[events.Event], list[LogLine]]:
        arrived = [event for line in self._events.lines() if (event := events.decode(line.decode()))]
        for event in arrived:
            self.state.apply(event)
        return arrived, self._new_lines()

    def follow(self) -> Iterator[tuple[list[events.Event], list[LogLine]]]:
        """Ends with the run; a run whose agent vanished ends as `lost`."""
        while True:
            is_held = self.run.is_held()  # before the look: what was written by then is seen
            yield self.look()
            if not is_held:
                if not self.state.is_final:
                    self.state = self.run.state()
                return
            time.sleep(_POLL)

    def close(self) -> None:
        for tail in (self._events, *self._logs.values()):
            tail.close()

    def _new_lines(self) -> list[LogLine]:
        for path in log_files(self.run):
            key = (int(path.parent.name), path.stem)
            if key not in self._logs:
                self._logs[key] = Tail(path)
        found = [
            parse_line(line, generation, task)
            for (generation, task), tail in self._logs.items()
            for line in tail.lines()
        ]
        return sorted(found, key=lambda line: line.time)


def log_files(run: RunFolder) -> list[Path]:
    """Of all generations, in order."""
    folders = [path for path in (run.path / "logs").glob("*") if path.name.isdigit()]
    return [
        path for folder in sorted(folders, key=lambda path: int(path.name)) for path in sorted(folder.glob("*.log"))
    ]


def parse_line(line: bytes, generation: int, task: str) -> LogLine:
    stamp, _, text = line.partition(b" ")
    return LogLine(stamp.decode(errors="replace"), generation, task, text.decode(errors="replace"))
