"""Following a run: its events and its tasks' lines, from the record on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

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
        self._read = 0
        self._rest = b""

    def skip(self) -> None:
        """Pass over what is there now."""
        if self.path.exists():
            self._read = self.path.stat().st_size

    def lines(self) -> list[bytes]:
        """Opened for each look: a watcher of a hundred tasks holds no hundred files."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return []
        self._read += len(data)
        *complete, self._rest = (self._rest + data).split(b"\n")
        return complete


class Watch:
    """A run as it goes on: `look` gives what is new, `follow` looks until the run has ended."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.state = events.RunState(run.name)
        self._events = Tail(run.path / "events.jsonl")
        self._logs: dict[tuple[int, str], Tail] = {}

    def look(self) -> tuple[list[events.Event], list[LogLine]]:
        arrived = [
            event for line in self._events.lines() if (event := events.decode(line.decode(errors="replace")))
        ]
        for event in arrived:
            self.state.apply(event)
        return arrived, self._new_lines()

    def follow(self) -> Iterator[tuple[list[events.Event], list[LogLine]]]:
        """Ends with the run; a run whose agent vanished ends as `lost`."""
        if not self.run.is_remote:
            yield from self._while(self.run.is_held)
            return
        from oarlock.engines.kubernetes import client  # only where there is a cluster

        with client.watching(self.run) as is_watched:
            yield from self._while(is_watched)

    def _while(self, is_live: Callable[[], bool]) -> Iterator[tuple[list[events.Event], list[LogLine]]]:
        while True:
            goes_on = is_live()  # before the look: what was written by then is seen
            yield self.look()
            if not goes_on:
                if not self.state.is_final:
                    self.state = self.run.state()
                return
            time.sleep(_POLL)

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
    folders.sort(key=lambda path: int(path.name))
    return [path for folder in folders for path in sorted(folder.glob("*.log"))]


def parse_line(line: bytes, generation: int, task: str) -> LogLine:
    stamp, _, text = line.partition(b" ")
    return LogLine(stamp.decode(errors="replace"), generation, task, text.decode(errors="replace"))
