"""The run's record as the agent writes it: events.jsonl, result.json and the tasks' logs.

Recording must never stop training. A full disk loses lines, which is noted once there is space again, and
space for the verdict is reserved at the start. Threads do the writing (`writer_thread`): while a disk or a
reader hangs, lines are dropped and counted, which is noted when it resumes. In a pod the record is printed as
well: clients read that, and a pod that does not lead has nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from oarlock.agent.record import log_segments, unfinished
from oarlock.agent.record.board_files import BoardFiles
from oarlock.agent.record.log_segments import LogFile, Logs
from oarlock.agent.record.pod_output import Echo, write_all
from oarlock.agent.record.task_log import Log
from oarlock.run import run_events
from oarlock.run.best_scores import of_checkpoint
from oarlock.run.board_points import point_of
from oarlock.run.run_state import RunState
from oarlock.system.atomic_file import write_durably
from oarlock.system.writer_thread import Outlet

_ROOM = 64 * 1024  # bytes reserved for the verdict
# Seconds that the loop waits while a disk accepts nothing. With `pod_output.PATIENCE`, this is less than the
# silence after which other agents close a connection.
_DISK_PATIENCE = 3.0


class Record:
    """One run's record. The writing thread calls the methods that begin with `_do`."""

    def __init__(
        self, folder: Path, state: RunState, echo: Echo | None = None, limit: int | None = None
    ) -> None:
        self.folder = folder
        self.state = state
        self.echo = echo
        self.board: BoardFiles | None = None  # only the leading agent has one
        self.missing: dict[str, int] = {}  # destination -> dropped lines
        self._disk = Outlet(_DISK_PATIENCE)
        self._logs = Logs(folder / "logs", limit)
        self._shortened: set[str] = set()  # tasks whose dropped lines were noted
        self._trouble: str | None = None  # why a line could not be written
        self._healed: str | None = None  # the same, once writing works again: to be recorded
        self._events: int | None = None
        self._is_torn = False  # events.jsonl ends in half a line
        self._is_leading = False  # other agents only write logs
        self._is_retired = False

    def retire(self) -> None:
        """Write only the logs of tasks from now on: another leader writes the record."""
        self._is_retired = True

    def emit(self, kind: str, /, **fields: Any) -> None:
        """Add an event. It is on disk when this returns, unless the disk hangs."""
        event: run_events.Event = {"t": time.time(), "kind": kind, **fields}
        self.state.apply(event)
        if self._is_retired:
            return
        self._is_leading = True
        data = run_events.encode(event).encode() + b"\n"
        may_be_lost = kind == "report" and not of_checkpoint(event)  # the next report replaces it
        self._disk.put(lambda: self._do_event(data), len(data), must=not may_be_lost)
        if not may_be_lost:
            self._disk.settle()
        if self.echo is not None:
            self.echo.event(event)
        self._show_on_board(event)
        self.note_losses()

    def end(self, state: str, code: int, **fields: Any) -> None:
        """Write the verdict: the last event, and result.json."""
        if self._is_retired:
            return
        self._disk.put(self._do_make_room)
        if self.board is not None:
            self.board.finish()
            self._tell_of_board(self.board)
        self.flush()
        self.note_losses(is_last=True)
        self.emit("end", state=state, code=code, **fields)
        text = json.dumps(self.state.to_data(), indent=1)
        self._disk.put(lambda: self._do_result(text))
        self.flush()

    def flush(self) -> None:
        """Wait for what was queued so far, but not forever. The rest is written when the process ends."""
        for outlet in self._outlets:
            outlet.flush(outlet.patience)

    def log(self, generation: int, task: str) -> Log:
        """The log of one task in one generation."""
        leads = self.echo is None or self.echo.leads
        return Log(self, self._logs.open(generation, task) if leads else None, task, generation)

    def scratch(self, task: str) -> Path:
        """A folder for a task's files that the run does not keep."""
        folder = self.folder / "scratch" / task
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._do_give_up(error)
            return Path(tempfile.mkdtemp(prefix="oarlock-"))
        return folder

    def complain(self, text: str) -> None:
        """Write to the agent's standard error: agent.log, or the pod's."""
        outlet = self._outlets[-1]
        outlet.put(lambda: _do_complain(text))
        outlet.settle()

    def append(self, file: LogFile, data: bytes) -> bool:
        """Append lines of a task's output. Returns False if they were dropped."""
        return self._disk.put(lambda: self._do_append(file, data), len(data), must=False)

    def show(self, file: LogFile, state: bytes) -> None:
        """Show the line that a task has begun, after what was appended."""
        self._disk.put(lambda: _do_show(file, state), len(state), must=False)

    def close(self, file: LogFile) -> None:
        """Close a task's log, after what was appended."""
        self._disk.put(file.close)

    def note_losses(self, is_last: bool = False) -> None:
        """Record what the writing threads could not write, once they write again."""
        healed, self._healed = self._healed, None
        if healed is not None:
            self._note(f"the record could not be written ({healed}): some lines are missing")
        if self.missing and (is_last or not any(outlet.is_stalled for outlet in self._outlets)):
            missing, self.missing = self.missing, {}
            for where, count in missing.items():
                self._note(f"{count} lines were dropped: {where} accepted none for a while")
        for task in self._logs.dropped.keys() - self._shortened:
            self._shortened.add(task)
            self._note(f"{task} wrote more than limits.logs: its oldest lines are dropped")

    def _show_on_board(self, event: run_events.Event) -> None:
        point = None if self.board is None else point_of(event, self.state)
        if self.board is not None and point is not None:
            self.board.add(point)
            self._tell_of_board(self.board)

    def _tell_of_board(self, board: BoardFiles) -> None:
        for kind, fields in board.news():
            self.emit(kind, **fields)

    @property
    def _outlets(self) -> list[Outlet]:
        return [self._disk, *([self.echo.outlet] if self.echo is not None else [])]

    def _note(self, text: str) -> None:
        if self._is_leading:
            self.emit("note", text=text)
        else:
            self.complain(text)

    def _do_event(self, data: bytes) -> None:
        if self._is_retired:
            return
        try:
            if self._events is None:  # only the leading agent opens it
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
        """Reserve space for the verdict, in case the disk is full by then. It is freed at the end."""
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


def _do_show(file: LogFile, state: bytes) -> None:
    try:
        unfinished.write(file.first, log_segments.end(log_segments.of(file.first)), state)
    except OSError:
        pass  # the log itself tells what is wrong with the disk


def _do_complain(text: str) -> None:
    write_all(2, f"oarlock: {text}\n".encode())
