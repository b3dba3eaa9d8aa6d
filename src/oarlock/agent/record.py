"""The run's record on disk, as the agent writes it: events.jsonl, result.json and the tasks' logs.

Records must never stop the training: on a full disk writing is given up, said once when there is
room again, and the verdict has its place kept from the beginning. In a pod it is printed as well: that
is what clients read, and all there is of a pod that leads nobody.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from oarlock import events
from oarlock.agent import lines

LINE_LIMIT = 64 * 1024
_ROOM = 64 * 1024
_GOES_ON = b" [line goes on]"


class Record:
    def __init__(self, folder: Path, state: events.RunState, echo: Echo | None = None) -> None:
        self.folder = folder
        self.state = state
        self.echo = echo
        self._trouble: str | None = None  # why a line could not be written, until that is said
        self._torn: set[int] = set()  # files that end in half a line
        self._events: int | None = None
        self._is_retired = False

    def retire(self) -> None:
        """It is somebody else's from now on: nothing more is added to it but the logs of tasks."""
        self._is_retired = True

    def emit(self, kind: str, /, **fields: Any) -> None:
        event: events.Event = {"t": time.time(), "kind": kind, **fields}
        self.state.apply(event)
        if self._is_retired:
            return
        if self._events is None:  # the leading agent's alone: the others only write logs
            path = self.folder / "events.jsonl"
            self._events = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._keep_room()
        self.write(self._events, events.encode(event).encode() + b"\n")
        if self.echo is not None:
            self.echo.event(event)

    def end(self, state: str, code: int, **fields: Any) -> None:
        if self._is_retired:
            return
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)
        (self.folder / "room").unlink(missing_ok=True)
        self.emit("end", state=state, code=code, **fields)
        result = self.folder / "result.json"
        draft = result.with_suffix(".part")
        try:
            draft.write_text(json.dumps(self.state.to_data(), indent=1))
            draft.replace(result)
        except OSError as error:
            self._give_up(error)

    def log(self, generation: int, task: str) -> Log:
        if self.echo is not None:
            prefix = lines.prefix(task, generation)
            if not self.echo.leads:
                return Log(self, os.open(os.devnull, os.O_WRONLY), prefix)
            return Log(self, self._log_file(generation, task), prefix)
        return Log(self, self._log_file(generation, task))

    def _log_file(self, generation: int, task: str) -> int:
        folder = self.folder / "logs" / str(generation)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return os.open(folder / f"{task}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            self._give_up(error)
            return os.open(os.devnull, os.O_WRONLY)

    def scratch(self, task: str) -> Path:
        folder = self.folder / "scratch" / task
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._give_up(error)
            return Path(tempfile.mkdtemp(prefix="oarlock-"))
        return folder

    def write(self, fd: int, data: bytes) -> None:
        """All of it, or what there is room for; half a line is ended before the next one."""
        if fd in self._torn:
            data = b"\n" + data
        try:
            while data:
                data = data[os.write(fd, data) :]
                self._torn.add(fd)
        except OSError as error:
            self._give_up(error)
            return
        self._torn.discard(fd)
        if self._trouble is not None and fd == self._events:
            trouble, self._trouble = self._trouble, None
            self.emit("note", text=f"the record could not be written ({trouble}): some lines are missing")

    def complain(self, text: str) -> None:
        """Into agent.log, which may be on the same full disk."""
        try:
            print(f"oarlock: {text}", file=sys.stderr, flush=True)
        except OSError:
            pass

    def _give_up(self, error: OSError) -> None:
        if self._trouble is None:
            self._trouble = error.strerror
            self.complain(f"cannot write {self.folder}: {error.strerror}")

    def _keep_room(self) -> None:
        """For the last words, should the disk be full by then. Given back at the end."""
        try:
            (self.folder / "room").write_bytes(os.urandom(_ROOM))
        except OSError as error:
            self._give_up(error)


class Echo:
    """The record on standard output, as `lines` describes it."""

    def __init__(self, leads: bool, out: int = 1) -> None:
        self.leads = leads
        self._out = out
        self._told = 0
        self._record = 0.0

    def replay(self, past: list[events.Event]) -> None:
        """What a leading agent finds in its record, for readers who missed it. Of reports only the latest."""
        latest = {event["task"]: number for number, event in enumerate(past) if event["kind"] == "report"}
        for number, event in enumerate(past):
            if event["kind"] != "report" or latest[event["task"]] == number:
                self.event(event)
            else:
                self._told += 1

    def event(self, event: events.Event) -> None:
        self._told += 1
        self._record = self._record or event["t"]
        self.write(lines.event(self._told, self._record, event))

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._out, data) :]


class Log:
    """One task's output: a line each, with the time it was read. Bytes stay as they came."""

    def __init__(self, record: Record, fd: int, prefix: bytes = b"") -> None:
        self._record = record
        self._fd = fd
        self._prefix = prefix
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *whole, rest = (self._rest + data).split(b"\n")
        *pieces, self._rest = _pieces(rest)
        self._put([piece for line in whole for piece in _pieces(line)] + pieces)

    def say(self, text: str) -> None:
        """A line of our own, after what the task has begun to write: a progress bar stands without an end."""
        begun, self._rest = self._rest, b""
        self._put([*([begun] if begun else []), text.encode()])

    def close(self) -> None:
        if self._rest:
            self._put([self._rest])
        os.close(self._fd)

    def _put(self, said: list[bytes]) -> None:
        if said:
            stamp = timestamp(time.time()).encode() + b" "
            self._record.write(self._fd, b"".join(stamp + line + b"\n" for line in said))
            if self._record.echo is not None:
                self._record.echo.write(b"".join(self._prefix + line + b"\n" for line in said))


def _pieces(line: bytes) -> list[bytes]:
    """An endless line in parts that say so; an ordinary one as it is."""
    if len(line) <= LINE_LIMIT:
        return [line]
    cuts = range(0, len(line), LINE_LIMIT)
    return [
        line[cut : cut + LINE_LIMIT] + (_GOES_ON if cut + LINE_LIMIT < len(line) else b"") for cut in cuts
    ]


def timestamp(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1e6):06d}Z"
