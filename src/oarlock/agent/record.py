"""The run's record on disk, as the agent writes it: events.jsonl, result.json and the tasks' logs.

Records must never stop the training: on a full disk writing is given up, said once, and tried
again with the next line.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from oarlock import events

LINE_LIMIT = 64 * 1024
_GOES_ON = b" [line goes on]"


class Record:
    def __init__(self, folder: Path, state: events.RunState) -> None:
        self.folder = folder
        self.state = state
        self._complained = False
        self._events: int | None = None

    def emit(self, kind: str, **fields: Any) -> None:
        event: events.Event = {"t": time.time(), "kind": kind, **fields}
        self.state.apply(event)
        if self._events is None:  # the leading agent's alone: the others only write logs
            path = self.folder / "events.jsonl"
            self._events = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.write(self._events, events.encode(event).encode() + b"\n")

    def end(self, state: str, code: int, **fields: Any) -> None:
        self.emit("end", state=state, code=code, **fields)
        result = self.folder / "result.json"
        draft = result.with_suffix(".part")
        try:
            draft.write_text(json.dumps(self.state.to_data(), indent=1))
            draft.replace(result)
        except OSError as error:
            self._complain(error)
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)

    def log(self, generation: int, task: str) -> Log:
        folder = self.folder / "logs" / str(generation)
        folder.mkdir(parents=True, exist_ok=True)
        return Log(self, folder / f"{task}.log")

    def scratch(self, task: str) -> Path:
        folder = self.folder / "scratch" / task
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write(self, fd: int, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError as error:
            self._complain(error)

    def complain(self, text: str) -> None:
        """Into agent.log."""
        print(f"oarlock: {text}", file=sys.stderr, flush=True)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            self.complain(f"cannot write {self.folder}: {error.strerror}")


class Log:
    """One task's output: a line each, with the time it was read. Bytes stay as they came."""

    def __init__(self, record: Record, path: Path) -> None:
        self._record = record
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        *pieces, self._rest = _pieces(rest)
        self._put([piece for line in lines for piece in _pieces(line)] + pieces)

    def close(self) -> None:
        if self._rest:
            self._put([self._rest])
        os.close(self._fd)

    def _put(self, lines: list[bytes]) -> None:
        if lines:
            stamp = timestamp(time.time()).encode() + b" "
            self._record.write(self._fd, b"".join(stamp + line + b"\n" for line in lines))


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
