"""The run's record on disk, as the agent writes it: events.jsonl, result.json and the tasks' logs.

Records must never stop the training: on a full disk writing is given up, said once when there is
room again, and the verdict has its place kept from the beginning. Threads do the writing (`outlet`): while
a disk or a reader stands still, lines are dropped and counted, and said when it moves again. In a pod the
record is printed as well: that is what clients read, and all there is of a pod that leads nobody.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from oarlock.agent.record import pod_lines
from oarlock.agent.record.log_segments import LogFile, Logs
from oarlock.run import events
from oarlock.run.run_state import RunState
from oarlock.system.atomic_file import write_durably
from oarlock.system.writer_thread import Outlet

LINE_LIMIT = 64 * 1024
_ROOM = 64 * 1024
# Seconds for which the loop waits where a disk, or whoever reads our output, takes no more. Together less
# than the silence after which other agents give up on a connection.
_DISK_PATIENCE, _OUTPUT_PATIENCE = 3.0, 1.5
_GOES_ON = b" [line goes on]"


class Record:
    """Methods that begin with `_do` are called by the outlet's thread."""

    def __init__(
        self, folder: Path, state: RunState, echo: Echo | None = None, limit: int | None = None
    ) -> None:
        self.folder = folder
        self.state = state
        self.echo = echo
        self.missing: dict[str, int] = {}  # lines that were dropped, by where they should have gone
        self._disk = Outlet(_DISK_PATIENCE)
        self._logs = Logs(folder / "logs", limit)
        self._shortened: set[str] = set()  # tasks whose oldest lines are known to be dropped
        self._trouble: str | None = None  # why a line could not be written
        self._healed: str | None = None  # the same, once one could: then it is said
        self._events: int | None = None
        self._is_torn = False  # events.jsonl ends in half a line
        self._is_leading = False  # the others only write logs
        self._is_retired = False

    def retire(self) -> None:
        """It is somebody else's from now on: nothing more is added to it but the logs of tasks."""
        self._is_retired = True

    def emit(self, kind: str, /, **fields: Any) -> None:
        """Written when this returns, unless the disk stands still."""
        event: events.Event = {"t": time.time(), "kind": kind, **fields}
        self.state.apply(event)
        if self._is_retired:
            return
        self._is_leading = True
        data = events.encode(event).encode() + b"\n"
        may_be_lost = kind == "report"  # the next one says more
        self._disk.put(lambda: self._do_event(data), len(data), must=not may_be_lost)
        if not may_be_lost:
            self._disk.settle()
        if self.echo is not None:
            self.echo.event(event)
        self.tell_news()

    def end(self, state: str, code: int, **fields: Any) -> None:
        if self._is_retired:
            return
        self._disk.put(self._do_make_room)
        self.flush()
        self.tell_news(is_last=True)
        self.emit("end", state=state, code=code, **fields)
        text = json.dumps(self.state.to_data(), indent=1)
        self._disk.put(lambda: self._do_result(text))
        self.flush()

    def flush(self) -> None:
        """Wait for what was said so far; not for ever. What is left then is written as the process ends."""
        for outlet in self._outlets:
            outlet.flush(outlet.patience)

    def log(self, generation: int, task: str) -> Log:
        leads = self.echo is None or self.echo.leads
        return Log(self, self._logs.open(generation, task) if leads else None, task, generation)

    def scratch(self, task: str) -> Path:
        folder = self.folder / "scratch" / task
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._do_give_up(error)
            return Path(tempfile.mkdtemp(prefix="oarlock-"))
        return folder

    def complain(self, text: str) -> None:
        """Into agent.log, which may be on the same disk, or to the pod's standard error."""
        outlet = self._outlets[-1]
        outlet.put(lambda: _do_complain(text))
        outlet.settle()

    def append(self, file: LogFile, data: bytes) -> bool:
        """Lines of a task. False if they were dropped."""
        return self._disk.put(lambda: self._do_append(file, data), len(data), must=False)

    def close(self, file: LogFile) -> None:
        self._disk.put(file.close)

    def tell_news(self, is_last: bool = False) -> None:
        """What the writing threads have met, once they proceed, or never."""
        healed, self._healed = self._healed, None
        if healed is not None:
            self._tell(f"the record could not be written ({healed}): some lines are missing")
        if self.missing and (is_last or not any(outlet.is_stalled for outlet in self._outlets)):
            missing, self.missing = self.missing, {}
            for where, count in missing.items():
                self._tell(f"{count} lines were dropped: {where} took none for a while")
        for task in self._logs.dropped.keys() - self._shortened:
            self._shortened.add(task)
            self._tell(f"{task} has written more than limits.logs: its oldest lines are dropped")

    @property
    def _outlets(self) -> list[Outlet]:
        return [self._disk, *([self.echo.outlet] if self.echo is not None else [])]

    def _tell(self, text: str) -> None:
        if self._is_leading:
            self.emit("note", text=text)
        else:
            self.complain(text)

    def _do_event(self, data: bytes) -> None:
        if self._is_retired:
            return
        try:
            if self._events is None:  # the leading agent's alone
                path = self.folder / "events.jsonl"
                self._events = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                self._do_keep_room()
            data = b"\n" + data if self._is_torn else data
            while data:
                data = data[os.write(self._events, data) :]
                self._is_torn = True
            self._is_torn = False
        except OSError as error:
            self._do_give_up(error)
            return
        if self._trouble is not None:
            self._healed, self._trouble = self._trouble, None

    def _do_append(self, file: LogFile, data: bytes) -> None:
        try:
            file.append(data)
        except OSError as error:
            self._do_give_up(error)

    def _do_keep_room(self) -> None:
        """For the last words, should the disk be full by then. Given back at the end."""
        try:
            if not (self.folder / "room").exists():  # a local client has made it
                (self.folder / "room").write_bytes(os.urandom(_ROOM))
        except OSError as error:
            self._do_give_up(error)

    def _do_make_room(self) -> None:
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)
        (self.folder / "room").unlink(missing_ok=True)

    def _do_result(self, text: str) -> None:
        try:
            write_durably(self.folder / "result.json", text.encode())
        except OSError as error:
            self._do_give_up(error)

    def _do_give_up(self, error: OSError) -> None:
        if self._trouble is None:
            self._trouble = error.strerror
            _do_complain(f"cannot write {self.folder}: {error.strerror}")


class Echo:
    """The record on standard output, as `lines` describes it."""

    def __init__(self, leads: bool, out: int = 1) -> None:
        self.leads = leads
        self.outlet = Outlet(_OUTPUT_PATIENCE)
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
        self.write(pod_lines.event(self._told, self._record, event), must=event["kind"] != "report")

    def write(self, data: bytes, must: bool = False) -> bool:
        return self.outlet.put(partial(_do_write, self._out, data), len(data), must=must)


class Log:
    """One task's output: a line each, with the time it was read. Bytes stay as they came."""

    def __init__(self, record: Record, file: LogFile | None, task: str, generation: int) -> None:
        self._record = record
        self._file = file
        self._prefix = pod_lines.prefix(task, generation)
        self._rest = b""
        self._missing = {"the disk": 0, "standard output": 0}  # lines, since the last that was taken

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
        if self._file is not None:
            self._record.close(self._file)

    def _put(self, said: list[bytes]) -> None:
        if not said:
            return
        file, echo = self._file, self._record.echo
        if file is not None:
            stamp = timestamp(time.time()).encode() + b" "
            data = self._joined(stamp, said, "the disk")
            self._count("the disk", len(said), self._record.append(file, data))
        if echo is not None:
            data = self._joined(self._prefix, said, "standard output")
            self._count("standard output", len(said), echo.write(data))
        if self._record.missing:
            self._record.tell_news()

    def _joined(self, head: bytes, said: list[bytes], where: str) -> bytes:
        """With a line in the place of those that are missing."""
        missing = self._missing[where]
        if missing:
            said = [b"oarlock: %d lines are missing here: %s took none" % (missing, where.encode()), *said]
        return b"".join(head + line + b"\n" for line in said)

    def _count(self, where: str, count: int, is_taken: bool) -> None:
        if is_taken:
            self._missing[where] = 0
        else:
            self._missing[where] += count
            self._record.missing[where] = self._record.missing.get(where, 0) + count


def _do_write(out: int, data: bytes) -> None:
    """All of it, however long nobody reads; nothing where nobody can any more."""
    while data:
        try:
            data = data[os.write(out, data) :]
        except BlockingIOError:  # somebody who shares it has made it so
            select.select([], [out], [])
        except OSError:
            return


def _do_complain(text: str) -> None:
    _do_write(2, f"oarlock: {text}\n".encode())


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
