"""The agent's side of snapshots: one process fetches before the first generation, another uploads after that.

Both are children of the leading agent, and the only ones that know object storage: whatever happens to them,
the agent and its tasks go on. What they say becomes notes in the record.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.agent.net.loop import Action, Loop
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.record.run_record import Record
from oarlock.system import processes

LAST = (
    60.0  # seconds at the run's end without a byte getting through, then it ends without its last snapshots
)
LONGEST = 600.0  # seconds at the run's end, however many get through
STOPPED = 10.0  # seconds for a run that somebody stopped, and waits for
HOPELESS = 3.0  # seconds where the store has never taken anything and does not now
_TOLD_AFTER = 3.0  # seconds of waiting at the end
_WAITS = (0.5, 2.0, 10.0)  # seconds before it is started again
_MARGIN = 3.0  # seconds: a pod is killed 5 s after its grace

Message = dict[str, Any]


class Child:
    """A process that takes orders and speaks in lines of JSON."""

    def __init__(
        self, loop: Loop, spec: Spec, module: str, on_line: Callable[[Message], None], on_end: Action
    ) -> None:
        self._loop = loop
        self._on_line = on_line
        self._on_end = on_end
        self._rest = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", processes.entry(f"oarlock.agent.snapshots.{module}")],
            env={**os.environ, **spec.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a library's last words may hold a key
        )
        assert self.process.stdout is not None
        self._out = self.process.stdout.fileno()
        os.set_blocking(self._out, False)
        loop.watch(self._out, self._read)

    def tell(self, order: Message) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # its end is noticed on the reading side

    def close(self) -> int:
        self._loop.forget(self._out)
        self.process.kill()
        code = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:
                pass  # what it was not told in time
        return code

    def _read(self) -> None:
        try:
            data = os.read(self._out, 65536)
        except BlockingIOError:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                self._on_line(json.loads(line))
            except ValueError:
                pass  # a library's own word
        if not data:
            self._loop.forget(self._out)
            self._on_end()


@dataclass
class Fetched:
    generation: int = 0  # of the snapshot that is now the newest checkpoint; 0 if none was needed
    failed: str | None = None  # why the run cannot begin
    signal: int | None = None  # what it was asked meanwhile


def fetch(loop: Loop, spec: Spec, record: Record) -> Fetched:
    """The newest snapshot into the checkpoints folder, if that has nothing newer. Before anybody trains."""
    fetched = Fetched()
    if not spec.snapshots:
        return fetched
    ended: list[bool] = []

    def on_line(line: Message) -> None:
        if "note" in line:
            record.emit("note", text=line["note"])
        fetched.generation = line.get("generation", fetched.generation)
        fetched.failed = _missing(spec) if "missing" in line else line.get("failed", fetched.failed)

    def on_signal(number: int) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            fetched.signal = number

    loop.on_signals([signal.SIGINT, signal.SIGTERM], on_signal)
    child = Child(loop, spec, "downloader", on_line, lambda: ended.append(True))
    child.tell(
        {
            **_places(spec),
            "patience": spec.limits.rendezvous,
            # Nothing of a run whose name was only just made up can be there.
            "is_new": spec.is_new and not record.state.generation,
        }
    )
    while not ended and fetched.signal is None:
        loop.turn()
    if ended:
        code = child.process.wait()
        if code and fetched.failed is None:
            fetched.failed = f"the process that fetches snapshots ended with {processes.shell_code(code)}"
    child.close()
    return fetched


class Uploads:
    """From the first generation to the verdict. Without snapshots in the job it does nothing."""

    def __init__(self, loop: Loop, spec: Spec, record: Record) -> None:
        self.loop = loop
        self.spec = spec
        self.record = record
        self._asked_to_leave: float | None = None  # when
        self._asked = 0  # how often somebody asked the run to stop: twice is at once
        self._works = True
        self._child: Child | None = None
        self._deaths = 0
        self._then: Action | None = None
        self._has_model = False
        self._seconds = LAST
        self._left: list[str] | None = None
        self._uploaded = 0

    @property
    def is_finishing(self) -> bool:
        return self._then is not None

    def start(self) -> None:
        if self.spec.snapshots:
            self._start()

    def finish(self, state: str, then: Action) -> None:
        """Give the last ones their time, and go on with `then`."""
        if (self._child is None and not self.loop.expects("snapshots")) or self._asked > 1:
            self._close()
            then()
            return
        self._then, self._has_model = then, state == "succeeded"
        self._seconds = LAST if state in ("succeeded", "failed") else STOPPED
        if not self._works and not self._uploaded:
            self._seconds = HOPELESS
        if self._asked_to_leave is not None:
            gone = time.monotonic() - self._asked_to_leave
            self._seconds = max(1.0, self.spec.limits.grace + _MARGIN - gone)
        self.loop.after("last snapshots", self._seconds, self._on_finished)
        self.loop.after("all snapshots", max(self._seconds, LONGEST), self._on_finished)
        self.loop.after("waiting for snapshots", _TOLD_AFTER, self._on_waiting)
        if self._child is not None:
            self._child.tell({"model": self._has_model})

    def leave(self) -> None:
        """The same for a machine that goes while the run goes on."""
        self.finish("moved", lambda: None)
        while self.is_finishing:
            self.loop.turn()

    def hurry(self, leaves: bool = False) -> None:
        """Somebody does not want to wait, or this machine has to leave."""
        if leaves and self._asked_to_leave is None:
            self._asked_to_leave = time.monotonic()
        self._asked += not leaves
        if self.is_finishing:
            self._on_finished()

    def _start(self) -> None:
        self._child = Child(self.loop, self.spec, "uploader", self._on_line, self._on_death)
        self._child.tell({**_places(self.spec), "owner": _owner(Path(self.spec.folder))})
        if self.is_finishing:
            self._child.tell({"model": self._has_model})

    def _on_line(self, line: Message) -> None:
        if "note" in line:
            self.record.emit("note", text=line["note"])
        elif "works" in line:
            self._works = line["works"]
        elif "uploaded" in line:
            self._uploaded += 1
            self.record.emit("snapshot", name=line["uploaded"], bytes=line["bytes"])
            if self._uploaded == 1:
                self.record.emit("note", text=f"snapshots go to {self.spec.snapshots}/{self.spec.run}")
        elif "left" in line:
            self._left = line["left"]
            if not self._left:
                self._on_finished()
        elif "part" in line and self.is_finishing and self._seconds == LAST:
            self.loop.after("last snapshots", LAST, self._on_finished)

    def _on_death(self) -> None:
        if self._child is None:
            return
        code = self._child.close()
        self._child = None
        if self.is_finishing and self._left == []:
            return
        wait = _WAITS[min(self._deaths, len(_WAITS) - 1)]
        if not self._deaths:
            how = processes.shell_code(code)
            text = f"the process that uploads snapshots ended with {how}; it is started again"
            self.record.emit("note", text=text)
        self._deaths += 1
        self.loop.after("snapshots", wait, self._start)

    def _on_waiting(self) -> None:
        if self.is_finishing and self._left:
            self.record.emit("note", text=f"the run ends when {', '.join(self._left)} is uploaded")

    def _on_finished(self) -> None:
        then, self._then = self._then, None
        self._close()
        if self._left is None:
            text = "whether the last snapshots are uploaded is not known"
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


def _missing(spec: Spec) -> str:
    fix = "pip install 'oarlock[storage]'" if spec.brings_crew else "add `pip: [obstore]` to the job"
    return f"storage.snapshots needs obstore, which is not installed here: {fix}"


def _places(spec: Spec) -> Message:
    return {
        "url": spec.snapshots,
        "run": spec.run,
        "checkpoints": spec.folders["checkpoints"],
        "model": spec.folders["model"],
    }


def _owner(folder: Path) -> str:
    """Tells this machine's uploads from those of another run of the same name; kept as long as the record."""
    path = folder / "snapshots-owner"
    try:
        if not path.exists():
            path.write_text(secrets.token_hex(8))
        return path.read_text()
    except OSError:
        return secrets.token_hex(8)
