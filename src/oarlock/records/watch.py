"""Read the events and the output of a run from its record, as they grow.

Files are read in pieces: a week of logs is larger than memory, and usually only the end is wanted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from oarlock.agent.record import log_segments, unfinished
from oarlock.agent.record.log_segments import Segment
from oarlock.records import log_blocks
from oarlock.records.log_blocks import Block
from oarlock.records.run_folder import RunFolder
from oarlock.run import run_events
from oarlock.run.run_state import RunState
from oarlock.system.lines import Lines

_POLL, _LONG_POLL = 0.02, 0.05  # seconds between two looks; the longer where a look takes long
_QUICK = 0.0005  # seconds
_PIECE = 1 << 20  # bytes read at a time, of all logs together
_LEAST = 1 << 14  # and of each
_BLOCK = 1 << 17  # read at a time from the end: more than the longest line
_LATE = 2  # generations: on a cluster some lines arrive late

Found = tuple[list[run_events.Event], list[Block]]


class Tail:
    """Reads the complete lines that a growing file has gained since the last call, one piece at a time.

    The segments of a log are read as one file; lines that were dropped before they were read are skipped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self.is_behind = False  # there may be more than the last call was allowed to read
        self._unfinished = Lines()

    def skip(self) -> None:
        """Skip the lines that exist now."""
        self.position = log_segments.end(self._segments())
        self._unfinished.take_rest()
        unfinished = next(self._backwards(self.position), b"").rpartition(b"\n")[2]
        self.position -= len(unfinished)

    def lines(self, found: Sequence[Segment] | None = None, most: int = _PIECE) -> list[bytes]:
        """Return new lines of at most about `most` bytes. `found`: its segments, if they are known.

        Each call opens the file: a client that follows a hundred tasks must not hold a hundred files open.
        """
        return self.piece(self._segments() if found is None else found, most).split(b"\n")[:-1]

    def piece(self, found: Sequence[Segment], most: int) -> bytes:
        """Return new lines as one piece, which ends with a newline."""
        data = self._read(found, most)
        self.is_behind = len(data) >= most
        return self._unfinished.whole(data)

    def catch_up(self, found: Sequence[Segment], most: int) -> int:
        """Skip whole lines if more than `most` bytes are unread; return how many bytes were skipped."""
        before, end = self.position - len(self._unfinished.rest), log_segments.end(found)
        if end - before <= most:
            return 0
        self.position = end - _BLOCK
        self._unfinished.take_rest()
        data = self._read(found, _BLOCK)
        start = data.find(b"\n") + 1 or len(data)
        self.position -= len(data) - start
        return self.position - before

    def before(self) -> Iterator[bytes]:
        """Yield all lines before the current position, in pieces that end with a newline."""
        earlier = Tail(self.path)
        while earlier.position < self.position:
            at = earlier.position
            yield earlier.piece(self._segments(), min(_PIECE, self.position - at))
            if earlier.position == at:
                return

    def begins(self) -> int:
        """Return the position of the first byte that was not dropped."""
        return next((segment.start for segment in self._segments()), 0)

    def last(self, count: int) -> list[bytes]:
        """Return the last `count` lines before the current position, read from the end."""
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
            if segment.start > self.position:  # what was in between was dropped
                most -= segment.start - self.position
                self.position = segment.start
                self._unfinished.take_rest()
                pieces.clear()
            if most <= 0:
                break
            piece = _read(segment.path, self.position - segment.start, most)
            pieces.append(piece)
            self.position += len(piece)
            most -= len(piece)
        return b"".join(pieces)

    def _backwards(self, end: int) -> Iterator[bytes]:
        """Yield the blocks before a position, the last one first."""
        for start, path in reversed(self._segments()):
            while end > start:
                size = min(_BLOCK, end - start)
                block = _read(path, end - size - start, size)
                if len(block) < size:
                    return  # dropped meanwhile
                yield block
                end -= size


class Watch:
    """Reads what is new in a run's record: `look` once, `follow` for as long as the run is live."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.state = RunState(run.name)
        self.logs: dict[tuple[int, str], Tail] = {}
        self.unfinished: dict[str, bytes] = {}  # what tasks have written of a line that has no end yet
        self.most_behind: int | None = None  # bytes; if a log is further ahead, only its end is read
        self._events = Tail(run.events_file)
        self._oldest = 0  # generation that may still get lines
        self._is_behind = False

    def skip(self, *, takes_in: bool = True) -> None:
        """Skip the output so far, but apply the events so far to the state, if `takes_in`."""
        if not takes_in:
            self._events.skip()
        while self._happened():
            pass
        for key, path in log_paths(self.run).items():
            self.logs[key] = Tail(path)
            self.logs[key].skip()

    def look(self) -> Found:
        """Return what is new, or a piece of it if there is much."""
        arrived, output = self._happened(), self._new_output()
        self._is_behind = self._events.is_behind or any(tail.is_behind for tail in self.logs.values())
        return arrived, output

    def follow(self, is_live: Callable[[], bool]) -> Iterator[Found]:
        """Yield what is new until the run is no longer live; a run whose agent vanished ends as `lost`."""
        while True:
            began = time.monotonic()
            may_grow = is_live()  # before reading: what was written by then is seen
            found = self.look()
            yield found
            if self._is_behind:
                continue
            if not may_grow:
                if not self.state.is_final:
                    self.state = self.run.state()
                return
            time.sleep(_POLL if time.monotonic() - began < _QUICK else _LONG_POLL)

    def _happened(self) -> list[run_events.Event]:
        arrived = [
            event
            for line in self._events.lines()
            if (event := run_events.decode(line.decode(errors="replace")))
        ]
        for event in arrived:
            self.state.apply(event)
        return arrived

    def _new_output(self) -> list[Block]:
        folder = self.run.logs
        found = {
            (generation, task): listed
            for generation in log_segments.generations(folder)
            if generation >= self._oldest
            for task, listed in log_segments.listed(folder / str(generation)).items()
        }
        most = max(_LEAST, _PIECE // max(1, len(found)))
        blocks = [block for key, listed in found.items() for block in self._blocks(key, listed, most)]
        latest = max((generation for generation, _ in found), default=0)
        if found and not blocks:
            self._oldest = latest - _LATE
        self.unfinished = {
            task: text
            for generation, task in found
            if generation == latest and (text := self._begun(generation, task))
        }
        return sorted(blocks, key=lambda block: block.time)

    def _blocks(self, key: tuple[int, str], listed: Sequence[Segment], most: int) -> list[Block]:
        generation, task = key
        tail = self.logs.setdefault(key, Tail(self.run.logs / str(generation) / f"{task}.log"))
        skipped = 0 if self.most_behind is None else tail.catch_up(listed, self.most_behind)
        blocks = [*log_blocks.split(tail.piece(listed, most), generation, task)]
        if skipped and blocks:
            blocks[0] = replace(blocks[0], skipped=skipped)
        return blocks

    def _begun(self, generation: int, task: str) -> bytes:
        tail = self.logs[generation, task]
        return unfinished.read(tail.path, tail.position)


def unfinished_lines(run: RunFolder, generation: int) -> dict[str, bytes]:
    """Return what each task has begun to write of a line that has no end yet."""
    found = {
        task: unfinished.read(run.log_file(generation, task), log_segments.end(segments))
        for task, segments in log_segments.listed(run.logs / str(generation)).items()
    }
    return {task: text for task, text in found.items() if text}


def log_paths(run: RunFolder) -> dict[tuple[int, str], Path]:
    """Return the first segment of each log, by generation and task; it may have been dropped."""
    folder = run.logs
    return {
        (generation, task): folder / str(generation) / f"{task}.log"
        for generation in log_segments.generations(folder)
        for task in log_segments.listed(folder / str(generation))
    }


def _read(path: Path, start: int, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            return os.pread(file.fileno(), most, start)
    except FileNotFoundError:
        return b""
