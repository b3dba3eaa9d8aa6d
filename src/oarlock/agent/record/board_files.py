"""TensorBoard's files of a run: the leading agent writes what the tasks report below LOG_DIR.

    LOG_DIR/training/events.out.tfevents.<seconds>.<host>.<pid>.oarlock
    LOG_DIR/evaluation/...

Several runs may share a LOG_DIR that the job chooses: there the run's name comes first. The folders differ
from LOG_DIR/train and LOG_DIR/validation, where Keras writes: TensorBoard may read only the newest file of a
folder. Every agent that leads the run starts its own files, because half a record would make the rest of a
file unreadable. A thread writes, and nothing waits for it: points are lost while a disk hangs or is full,
which is noted once.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from pathlib import Path

from oarlock.agent.record import tfevents
from oarlock.run.board_points import Point
from oarlock.system.writer_thread import Outlet

SUFFIX = ".oarlock"  # marks our files among those that programs write
_MARK = "tfevents"  # in the name of every event file
_ROOM = 1 << 20  # bytes that may wait for the disk
_FLUSH = 3.0  # seconds
_LOOK = 30.0  # seconds between two searches for the program's own files
_MOST_FILES = 10_000  # that one search may visit

News = tuple[str, dict[str, str]]  # an event for the record: its kind and its fields


def board_folder(logs: str, record: str, run: str) -> str:
    """Return the folder with the files of a run, whose LOG_DIR is `logs`. Pure."""
    return logs if Path(record) in Path(logs).parents else f"{logs.rstrip('/')}/{run}"


def event_files(folder: str, *, ours: bool) -> bool:
    """Return whether there are event files below a folder: ours, or those of programs."""
    seen = 0
    for _, _, names in os.walk(folder):
        if any(_MARK in name and name.endswith(SUFFIX) == ours for name in names):
            return True
        seen += len(names) + 1
        if seen > _MOST_FILES:
            break
    return False


class BoardFiles:
    """The files of one run. The writing thread calls the methods that begin with `_do`."""

    def __init__(self, logs: str, record: str, run: str) -> None:
        self._logs = logs
        self._folder = Path(board_folder(logs, record, run))
        self._is_url = "://" in logs
        self._outlet = Outlet(patience=0.0, most=_ROOM)
        self._files: dict[str, EventFile] = {}
        self._news: deque[News] = deque()
        self._looked = 0.0  # when the last search was; 0: never
        self._told: set[str] = set()  # each is reported once
        if self._is_url:
            self._tell(
                "note",
                f"LOG_DIR is {logs}, where the agent writes nothing; `oarlock tensorboard` shows the reports",
            )

    def add(self, point: Point) -> None:
        """Queue a point for writing."""
        if not self._is_url:
            self._outlet.put(lambda: self._do_add(point), 256, must=False)

    def finish(self) -> None:
        """Wait for what was added so far, but not forever."""
        if not self._is_url:
            self._outlet.put(self._do_look)
            self._outlet.flush(_FLUSH)

    def news(self) -> list[News]:
        """Return what to record about the files, each piece once."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def _do_add(self, point: Point) -> None:
        file = self._files.setdefault(point.folder, EventFile(self._folder / point.folder))
        try:
            file.add(point)
        except OSError as error:
            self._tell(
                "note", f"TensorBoard's files cannot be written ({error.strerror}): points are missing there"
            )
        if time.monotonic() - self._looked > _LOOK or not self._looked:
            self._do_look()

    def _do_look(self) -> None:
        """Find out for clients whether to read this folder: they know the reported values anyway."""
        self._looked = time.monotonic()
        if "logs" not in self._told and event_files(self._logs, ours=False):
            self._tell("logs", "the program writes event files of its own")

    def _tell(self, kind: str, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            self._news.append((kind, {"text": text}))


class EventFile:
    """One file in a folder. The first point creates it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd: int | None = None
        self._size = 0
        self._newest: tuple[int, int] | None = None  # generation and step

    def add(self, point: Point) -> None:
        """Append a point. Raises OSError; the file then ends where it ended before."""
        data = tfevents.scalars(point.t, point.step, point.values)
        is_first = self._newest is None
        generation, step = self._newest or (0, 0)
        if is_first or (point.generation != generation and point.step <= step):
            data = tfevents.restart(point.t, point.step) + data  # also drops what another leader wrote
        self._append(data)
        self._newest = point.generation, max(point.step, 0 if point.generation != generation else step)

    def close(self) -> None:
        """Close the file. A further point starts another one."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _append(self, data: bytes) -> None:
        if self._fd is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._folder / _name(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            self._size = 0
        if not self._size:
            data = tfevents.header(time.time()) + data
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._size + written)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += written


def _name() -> str:
    host = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in socket.gethostname())
    return f"events.out.tfevents.{time.time():.6f}.{host}.{os.getpid()}{SUFFIX}"
