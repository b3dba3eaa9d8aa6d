"""Following a run: its events and its tasks' lines, from the record on this machine.

Read in pieces: a week's logs are larger than any memory, and whoever looks wants to see their end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oarlock.agent.record import log_segments
from oarlock.agent.record.log_segments import Segment
from oarlock.records.runs import RunFolder
from oarlock.run import events
from oarlock.run.run_state import RunState

_POLL = 0.05
_PIECE = 1 << 20  # bytes of one look, of all logs together
_LEAST = 1 << 14  # and of each
_BLOCK = 1 << 17  # read at a time from the end: more than the longest line
_LATE = 2  # generations ago: on a cluster some lines come late

Found = tuple[list[events.Event], list["LogLine"]]


@dataclass(frozen=True)
class LogLine:
    time: str  # as in the file: ISO 8601, UTC
    generation: int
    task: str
    text: str


class Tail:
    """The complete lines that a growing file has got since the last look, a piece at a time.

    Of a log it reads all segments as one file; what was dropped before it was read is passed over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self.is_behind = False  # there may be more than the last look was allowed to read
        self._rest = b""

    def skip(self) -> None:
        """Pass over the lines that are there now."""
        last = (self._segments() or [Segment(0, self.path)])[-1]
        try:
            self.position = last.start + last.path.stat().st_size
        except FileNotFoundError:
            return
        self._rest = b""
        unfinished = next(self._backwards(self.position), b"").rpartition(b"\n")[2]
        self.position -= len(unfinished)

    def lines(self, found: Sequence[Segment] | None = None, most: int = _PIECE) -> list[bytes]:
        """At most about `most` bytes of them. Opened for each look: a watcher of a hundred tasks holds no
        hundred files. `found`: its segments, where somebody has listed them already."""
        data = self._read(self._segments() if found is None else found, most)
        self.is_behind = len(data) >= most
        *complete, self._rest = (self._rest + data).split(b"\n")
        return complete

    def before(self) -> Iterator[bytes]:
        """All lines up to the place that it has reached, one after the other."""
        earlier = Tail(self.path)
        while earlier.position < self.position:
            at = earlier.position
            yield from earlier.lines(most=min(_PIECE, self.position - at))
            if earlier.position == at:
                return

    def begins(self) -> int:
        """The first byte that there still is."""
        return next((segment.start for segment in self._segments()), 0)

    def last(self, count: int) -> list[bytes]:
        """As many of the last lines before that place, read from there."""
        blocks, ends = [], 0
        for block in self._backwards(self.position):
            blocks.append(block)
            ends += block.count(b"\n")
            if ends > count:
                break
        *lines, _ = b"".join(reversed(blocks)).split(b"\n")
        return lines[max(0, len(lines) - count) :]

    def _segments(self) -> list[Segment]:
        return log_segments.of(self.path) if self.path.suffix == ".log" else [Segment(0, self.path)]

    def _read(self, found: Sequence[Segment], most: int) -> bytes:
        pieces: list[bytes] = []
        for number, segment in enumerate(found):
            if number + 1 < len(found) and found[number + 1].start <= self.position:
                continue
            if segment.start > self.position:  # what was between is dropped
                most -= segment.start - self.position
                self.position, self._rest = segment.start, b""
                pieces.clear()
            if most <= 0:
                break
            piece = _read(segment.path, self.position - segment.start, most)
            pieces.append(piece)
            self.position += len(piece)
            most -= len(piece)
        return b"".join(pieces)

    def _backwards(self, end: int) -> Iterator[bytes]:
        """Blocks of at most 64 KiB that end there, the last one first."""
        for start, path in reversed(self._segments()):
            while end > start:
                size = min(_BLOCK, end - start)
                block = _read(path, end - size - start, size)
                if len(block) < size:
                    return  # dropped meanwhile
                yield block
                end -= size


class Watch:
    """A run as it goes on: `look` gives what is new, `follow` looks while the run is live."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.state = RunState(run.name)
        self.logs: dict[tuple[int, str], Tail] = {}
        self._events = Tail(run.events_file)
        self._oldest = 0  # generation that may still get lines
        self._is_behind = False

    def skip(self, *, takes_in: bool = True) -> None:
        """Take in what has happened so far, or not even that, and pass over the output of that time."""
        if not takes_in:
            self._events.skip()
        while self._happened():
            pass
        for key, path in log_paths(self.run).items():
            self.logs[key] = Tail(path)
            self.logs[key].skip()

    def look(self) -> Found:
        """What is new, or a piece of it where that is much."""
        arrived, lines = self._happened(), self._new_lines()
        self._is_behind = self._events.is_behind or any(tail.is_behind for tail in self.logs.values())
        return arrived, lines

    def follow(self, is_live: Callable[[], bool]) -> Iterator[Found]:
        """Until the run is no longer live; a run whose agent vanished ends as `lost`."""
        while True:
            goes_on = is_live()  # before the look: what was written by then is seen
            found = self.look()
            yield found
            if self._is_behind:
                continue
            if not goes_on:
                if not self.state.is_final:
                    self.state = self.run.state()
                return
            time.sleep(_POLL)

    def _happened(self) -> list[events.Event]:
        arrived = [
            event for line in self._events.lines() if (event := events.decode(line.decode(errors="replace")))
        ]
        for event in arrived:
            self.state.apply(event)
        return arrived

    def _new_lines(self) -> list[LogLine]:
        folder = self.run.logs
        found = {
            (generation, task): listed
            for generation in log_segments.generations(folder)
            if generation >= self._oldest
            for task, listed in log_segments.listed(folder / str(generation)).items()
        }
        most = max(_LEAST, _PIECE // max(1, len(found)))
        lines = []
        for (generation, task), listed in found.items():
            tail = self.logs.setdefault((generation, task), Tail(folder / str(generation) / f"{task}.log"))
            lines += [parse_line(line, generation, task) for line in tail.lines(listed, most)]
        if found and not lines:
            self._oldest = max(generation for generation, _ in found) - _LATE
        return sorted(lines, key=lambda line: line.time)


def log_paths(run: RunFolder) -> dict[tuple[int, str], Path]:
    """The first segment of each log, by generation and task, in order; it may have been dropped."""
    folder = run.logs
    return {
        (generation, task): folder / str(generation) / f"{task}.log"
        for generation in log_segments.generations(folder)
        for task in log_segments.listed(folder / str(generation))
    }


def parse_line(line: bytes, generation: int, task: str) -> LogLine:
    stamp, _, text = line.partition(b" ")
    return LogLine(stamp.decode(errors="replace"), generation, task, text.decode(errors="replace"))


def _read(path: Path, start: int, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            return os.pread(file.fileno(), most, start)
    except FileNotFoundError:
        return b""
