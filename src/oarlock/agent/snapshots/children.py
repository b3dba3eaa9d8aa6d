"""The leading agent's side of the uploader and of the other processes that use object storage.

They are child processes, and no other process uses it: whatever happens to them, the agent and its tasks
continue. Their notes become notes in the record.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from oarlock.agent.net.deadlines import Action
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.record.run_record import Record
from oarlock.agent.snapshots.snapshot_messages import (
    LINES,
    ORDERS,
    FinishUploads,
    Left,
    Line,
    Note,
    Order,
    Reachable,
    Upload,
    Uploaded,
    UploadedPart,
)
from oarlock.system import processes
from oarlock.system.lines import Lines

# Seconds at the run's end without a byte getting through. Then it ends without its last snapshots.
LAST = 60.0
LONGEST = 600.0  # seconds at the run's end, however many bytes get through
STOPPED = 10.0  # seconds for a run that a user stopped and is waiting for
HOPELESS = 3.0  # seconds if the store has never accepted anything and does not now
_NOTE_AFTER = 3.0  # seconds of waiting at the end before a note says so
_WAITS = (0.5, 2.0, 10.0)  # seconds before an uploader that died is restarted
_MARGIN = 3.0  # seconds: a pod is killed 5 s after its grace


class Child:
    """An uploader or a downloader. It gets orders and answers in lines of JSON."""

    def __init__(
        self, loop: Loop, spec: Spec, module: str, on_line: Callable[[Line], None], on_end: Action
    ) -> None:
        self._loop = loop
        self._on_line = on_line
        self._on_end = on_end
        self._lines = Lines()
        self.process = subprocess.Popen(
            [sys.executable, "-c", processes.entry(f"oarlock.agent.snapshots.{module}")],
            env={**os.environ, **spec.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a library's traceback may contain a key
        )
        processes.spare(self.process.pid)
        assert self.process.stdout is not None
        self._out = self.process.stdout.fileno()
        os.set_blocking(self._out, False)
        loop.watch(self._out, self._read)

    def send(self, order: Order) -> None:
        """Send an order. If the process has died, the loop notices it on the next read."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(ORDERS.to_data(order)).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def close(self) -> int:
        """Kill the process and return its exit code."""
        self._loop.forget(self._out)
        self.process.kill()
        code = self.process.wait()
        processes.release(self.process.pid)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:
                pass  # there is an order that it did not read in time
        return code

    def _read(self) -> None:
        try:
            data = os.read(self._out, 65536)
        except BlockingIOError:
            return
        for text in self._lines.feed(data):
            try:
                line = LINES.from_data(json.loads(text))
            except ValueError:
                continue  # a library may print, too
            self._on_line(line)
        if not data:
            self._loop.forget(self._out)
            self._on_end()


class Uploads:
    """Runs the uploader from the first generation to the verdict, if the job has snapshots."""

    def __init__(self, loop: Loop, spec: Spec, record: Record) -> None:
        self.loop = loop
        self.spec = spec
        self.record = record
        self._asked_to_leave: float | None = None  # when this machine was asked to leave
        self._stops = 0  # how often a user asked the run to stop; the second time means at once
        self._is_reachable = True
        self._child: Child | None = None
        self._deaths = 0
        self._then: Action | None = None
        self._has_model = False
        self._seconds = LAST
        self._left: list[str] | None = None
        self._uploaded = 0

    @property
    def _is_finishing(self) -> bool:
        return self._then is not None

    def start(self) -> None:
        """Start the uploader, if the job has snapshots."""
        if self.spec.snapshots:
            self._start()

    def finish(self, state: str, then: Action) -> None:
        """Call `then` once the last snapshots are uploaded or out of time."""
        if (self._child is None and not self.loop.expects("snapshots")) or self._stops > 1:
            self._close()
            then()
            return
        self._then, self._has_model = then, state == "succeeded"
        self._seconds = LAST if state in ("succeeded", "failed") else STOPPED
        if not self._is_reachable and not self._uploaded:
            self._seconds = HOPELESS
        if self._asked_to_leave is not None:
            gone = time.monotonic() - self._asked_to_leave
            self._seconds = max(1.0, self.spec.limits.grace + _MARGIN - gone)
        self.loop.after("last snapshots", self._seconds, self._on_finished)
        self.loop.after("all snapshots", max(self._seconds, LONGEST), self._on_finished)
        self.loop.after("waiting for snapshots", _NOTE_AFTER, self._on_waiting)
        if self._child is not None:
            self._child.send(FinishUploads(self._has_model))

    def leave(self) -> None:
        """Finish, and wait for that: this machine leaves, and the run continues elsewhere."""
        self.finish("moved", lambda: None)
        while self._is_finishing:
            self.loop.turn()

    def hurry(self, leaves: bool = False) -> None:
        """Wait less: a user asked the run to stop, or (`leaves`) this machine has to leave."""
        if leaves and self._asked_to_leave is None:
            self._asked_to_leave = time.monotonic()
        self._stops += not leaves
        if self._is_finishing:
            self._on_finished()

    def _start(self) -> None:
        self._child = Child(self.loop, self.spec, "uploader", self._on_line, self._on_death)
        folders, owner = self.spec.folders, _owner(Path(self.spec.folder))
        url, run = self.spec.snapshots, self.spec.run
        self._child.send(Upload(url, run, folders["checkpoints"], folders["model"], owner))
        if self._is_finishing:
            self._child.send(FinishUploads(self._has_model))

    def _on_line(self, line: Line) -> None:
        if isinstance(line, Note):
            self.record.emit("note", text=line.text)
        elif isinstance(line, Reachable):
            self._is_reachable = line.is_reachable
        elif isinstance(line, Uploaded):
            self._uploaded += 1
            self.record.emit("snapshot", name=line.name, bytes=line.bytes)
            if self._uploaded == 1:
                self.record.emit("note", text=f"snapshots go to {self.spec.snapshots}/{self.spec.run}")
        elif isinstance(line, Left):
            self._left = line.names
            if not self._left:
                self._on_finished()
        elif isinstance(line, UploadedPart) and self._is_finishing and self._seconds == LAST:
            self.loop.after("last snapshots", LAST, self._on_finished)

    def _on_death(self) -> None:
        if self._child is None:
            return
        code = self._child.close()
        self._child = None
        if self._is_finishing and self._left == []:
            return
        wait = _WAITS[min(self._deaths, len(_WAITS) - 1)]
        if not self._deaths:
            how = processes.shell_code(code)
            text = f"the process that uploads snapshots ended with {how} and is restarted"
            self.record.emit("note", text=text)
        self._deaths += 1
        self.loop.after("snapshots", wait, self._start)

    def _on_waiting(self) -> None:
        if self._is_finishing and self._left:
            text = f"waiting for the upload of {', '.join(self._left)} before the run ends"
            self.record.emit("note", text=text)

    def _on_finished(self) -> None:
        then, self._then = self._then, None
        self._close()
        if self._left is None:
            text = "it is not known whether the last snapshots were uploaded"
            self.record.emit("note", text=text)
        elif self._left:
            text = f"not uploaded to {self.spec.snapshots}: {', '.join(self._left)}"
            self.record.emit("note", text=text)
        if then is not None:
            then()

    def _close(self) -> None:
        for name in ("last snapshots", "all snapshots", "waiting for snapshots", "snapshots"):
            self.loop.cancel(name)
        if self._child is not None:
            self._child.close()
            self._child = None


def _owner(folder: Path) -> str:
    """An owner for this record's uploads, different from that of another run of the same name."""
    path = folder / "snapshots-owner"
    try:
        if not path.exists():
            path.write_text(secrets.token_hex(8))
        return path.read_text()
    except OSError:
        return secrets.token_hex(8)
