"""A task's log on disk, in segments: the oldest are dropped once the task has written more than its limit.

    logs/<generation>/worker-0.log              from the beginning
    logs/<generation>/worker-0.134217751.log    from that byte of the generation's output on

A segment ends with a whole line and is never renamed, so a reader that remembers how many bytes it has read
finds its position, whatever was added or dropped since. The limit applies to a task, over all generations.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"(.+?)(?:\.(\d+))?\.log", re.DOTALL)
UNFINISHED = ".unfinished"  # next to the log: the line that a task has begun
_PARTS = 8  # segments that make up the limit


class Segment(NamedTuple):
    """One file of a log."""

    start: int  # bytes of the generation's output before this segment
    path: Path


def read_name(name: str) -> tuple[str, int] | None:
    """The task and the start from a file name; None if it is no log."""
    found = _NAME.fullmatch(name)
    return (found[1], int(found[2] or 0)) if found else None


def of(path: Path) -> list[Segment]:
    """The segments of the log whose first segment is, or was, at `path`."""
    return listed(path.parent).get(path.stem, [])


def listed(folder: Path) -> dict[str, list[Segment]]:
    """The logs in the folder of one generation, by task."""
    found: dict[str, list[Segment]] = {}
    for name in _names(folder):
        read = read_name(name)
        if read is not None:
            found.setdefault(read[0], []).append(Segment(read[1], folder / name))
        elif name.endswith(UNFINISHED) and not name.startswith("."):
            found.setdefault(name.removesuffix(UNFINISHED), [])  # a task that has no whole line yet
    return {task: sorted(segments) for task, segments in sorted(found.items())}


def end(segments: Sequence[Segment]) -> int:
    """The bytes of the generation's output so far."""
    try:
        return segments[-1].start + segments[-1].path.stat().st_size if segments else 0
    except FileNotFoundError:
        return 0


def generations(folder: Path) -> list[int]:
    """The generations that have logs in a run's folder, in order."""
    return sorted(int(name) for name in _names(folder) if name.isdecimal())


class Logs:
    """All logs of a run that this process writes, and how much each task has on disk."""

    def __init__(self, folder: Path, limit: int | None) -> None:
        self.folder = folder
        self.limit = limit
        self.segment = (limit or 0) // _PARTS
        self.dropped: dict[str, int] = {}  # task -> bytes
        self._kept: dict[str, list[tuple[Path, int]]] | None = None  # complete segments with their sizes

    def open(self, generation: int, task: str) -> LogFile:
        """Return the log of one task in one generation. Creates no file yet."""
        return LogFile(self, generation, task)

    def complete(self, task: str, path: Path, size: int) -> None:
        """Note that a segment is complete, and drop the oldest ones above the limit."""
        self._of(task).append((path, size))
        self._shrink(task)

    def forget(self, task: str, path: Path) -> None:
        """Note that a segment is being written again, so it is not complete."""
        self._of(task)[:] = [segment for segment in self._of(task) if segment[0] != path]

    def _shrink(self, task: str) -> None:
        """Drop the oldest segments above the limit, counting the next one as full."""
        if self.limit is None:
            return
        kept = self._of(task)
        excess = sum(size for _, size in kept) + self.segment - self.limit
        while kept and excess > 0:
            path, size = kept.pop(0)
            path.unlink(missing_ok=True)
            excess -= size
            self.dropped[task] = self.dropped.get(task, 0) + size

    def _of(self, task: str) -> list[tuple[Path, int]]:
        if self._kept is None:
            self._kept = {}
            for generation in generations(self.folder):
                for name, segments in listed(self.folder / str(generation)).items():
                    sizes = [(segment.path, segment.path.stat().st_size) for segment in segments]
                    self._kept.setdefault(name, []).extend(sizes)
        return self._kept.setdefault(task, [])


class LogFile:
    """The log of one task in one generation. Raises OSError. `is_torn` while it ends in half a line."""

    def __init__(self, logs: Logs, generation: int, task: str) -> None:
        self.logs = logs
        self.task = task
        self.first = self.path = logs.folder / str(generation) / f"{task}.log"
        self.is_torn = False
        self._fd: int | None = None
        self._start = self._size = 0

    def append(self, data: bytes) -> None:
        """Append whole lines. What was written before an error stays."""
        for piece in self._pieces(data):
            self._append(piece)

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        """Whole lines, hardly more than a segment at a time: a segment is dropped as a whole."""
        while self.logs.segment and len(data) > self.logs.segment:
            cut = data.find(b"\n", self.logs.segment - 1) + 1 or len(data)
            yield data[:cut]
            data = data[cut:]
        if data:
            yield data

    def _append(self, data: bytes) -> None:
        if self._fd is None:
            self._open()
        if self._is_full and not self.is_torn:
            self._next()
        assert self._fd is not None
        if self.is_torn:
            data = b"\n" + data
        while data:
            count = os.write(self._fd, data)
            self.is_torn = True
            self._size += count
            data = data[count:]
        self.is_torn = False

    def close(self) -> None:
        """Close the file, if any was written."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self.logs.complete(self.task, self.path, self._size)

    @property
    def _is_full(self) -> bool:
        return self.logs.limit is not None and self._size >= self.logs.segment

    def _open(self) -> None:
        """Open the last segment: the agent may have been replaced, or the task restarted."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._start, self.path = (of(self.first) or [Segment(0, self.first)])[-1]
        self.logs.forget(self.task, self.path)
        self._create()

    def _next(self) -> None:
        assert self._fd is not None
        os.close(self._fd)
        self.logs.complete(self.task, self.path, self._size)
        self._start += self._size
        self.path = self.path.parent / f"{self.task}.{self._start}.log"
        self._create()

    def _create(self) -> None:
        self._fd = None
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._size = os.fstat(self._fd).st_size


def _names(folder: Path) -> Iterable[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
