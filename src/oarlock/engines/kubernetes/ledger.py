"""The record of a cluster run on this machine, written by whoever watches it: in the same files that an
agent writes for a local run, so that every verb reads both alike.

What was read and how far are committed together: a client that is killed in between leaves files that are
longer than the last commit says, and the next one cuts them back. No line is lost or written twice.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oarlock import events
from oarlock.agent import lines
from oarlock.agent.segments import Logs
from oarlock.agent.spec import Spec
from oarlock.agent.wanted import Wanted
from oarlock.engines.kubernetes.podlog import Position
from oarlock.runs import RunFolder

_FILE = "watched.json"


class Ledger:
    """Open only while holding the run's lock."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        kept = _kept(run)
        self.positions = {uid: Position(**fields) for uid, fields in kept["positions"].items()}
        self.records: dict[str, int] = kept["records"]  # how many events of each of the leader's records
        self._sizes: dict[str, int] = kept["sizes"]
        self._waiting: dict[str, list[str]] = {}  # lines by file, until the next commit
        self._output: dict[tuple[int, str], list[str]] = {}  # and of tasks, by generation and name
        self._roll_back()
        self.state = events.fold(run.name, run.events())
        self._spec = Spec.from_json((run.path / "agent.json").read_text())
        self._logs = Logs(run.path / "logs", self._spec.limits.logs)

    @property
    def machines(self) -> int:
        """How many pods there are to be, by the last `scale`."""
        return Wanted(self._spec, self.state.workers).machines

    def take(self, uid: str, pod: str, stamp: str, text: str) -> None:
        """One line of a pod's log."""
        said = lines.parse(text)
        if isinstance(said, lines.EventLine):
            self._take_event(said)
        elif isinstance(said, lines.TaskLine):
            key = said.generation, said.task
            self._output.setdefault(key, []).append(f"{stamp} {said.text}")
        else:
            self._append("agent.log", f"{stamp} {pod}: {text}")

    def emit(self, kind: str, **fields: Any) -> None:
        """An event of the client's own: what only it can see."""
        self._put({"t": time.time(), "kind": kind, **fields})

    def end(self, state: str, code: int, **fields: Any) -> None:
        self.emit("end", state=state, code=code, **fields)

    def commit(self) -> None:
        """Also when nothing is new: it says when the cluster was last seen."""
        for name, waiting in self._waiting.items():
            path = self.run.path / name
            with path.open("ab") as file:
                file.write(_joined(waiting))
            self._sizes[name] = path.stat().st_size
        self._waiting.clear()
        for (generation, task), waiting in self._output.items():
            with closing(self._logs.open(generation, task)) as log:
                log.append(_joined(waiting))
            self._sizes[log.path.relative_to(self.run.path).as_posix()] = log.path.stat().st_size
        self._output.clear()
        kept = {
            "positions": {uid: asdict(position) for uid, position in self.positions.items()},
            "records": self.records,
            "sizes": self._sizes,
        }
        _replace(self.run.path / _FILE, json.dumps(kept))

    def seal(self) -> None:
        """The run is over: its state as it will be from now on."""
        self.commit()
        _replace(self.run.path / "result.json", json.dumps(self.state.to_data(), indent=1))

    def _take_event(self, said: lines.EventLine) -> None:
        record = repr(said.record)
        if said.number <= self.records.get(record, 0):
            return  # told again by a leader that took over
        self.records[record] = said.number
        if said.event["kind"] != "run":  # which was written here before anything ran
            self._put(said.event)

    def _put(self, event: events.Event) -> None:
        self.state.apply(event)
        self._append("events.jsonl", events.encode(event))

    def _append(self, name: str, line: str) -> None:
        self._waiting.setdefault(name, []).append(line)

    def _roll_back(self) -> None:
        self._sizes = {name: size for name, size in self._sizes.items() if (self.run.path / name).exists()}
        first = self.run.path / "events.jsonl"
        if not self._sizes:  # as the submission wrote it
            self._sizes[first.name] = first.stat().st_size
            self.commit()
        for path in (first, self.run.path / "agent.log", *self.run.path.glob("logs/*/*.log")):
            name = path.relative_to(self.run.path).as_posix()
            if path.exists() and path.stat().st_size > self._sizes.get(name, 0):
                os.truncate(path, self._sizes.get(name, 0))


def _joined(waiting: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in waiting).encode("utf-8", "replace")


def _kept(run: RunFolder) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads((run.path / _FILE).read_bytes())
        return kept
    except (OSError, ValueError):
        return {"positions": {}, "records": {}, "sizes": {}}


def _replace(path: Path, text: str) -> None:
    draft = path.with_suffix(".part")
    draft.write_text(text)
    draft.replace(path)
