"""The record of a cluster run on this machine. The client that follows the run writes the same files that an
agent writes for a local run, so that every verb reads both alike.

What was read and how far are committed together: a client that is killed in between leaves files that are
longer than the last commit says, and the next client cuts them back. No line is lost or written twice. If
the commit itself is damaged, the files stay, all is read again, and what they have already is skipped.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oarlock.agent.lead.agents.target_size import TargetSize
from oarlock.agent.record import log_segments, pod_lines, unfinished
from oarlock.agent.record.task_log import LINE_LIMIT
from oarlock.engines.kubernetes.follow.pod_log import Position
from oarlock.errors import LaterRun
from oarlock.records.run_folder import RunFolder
from oarlock.run import run_events
from oarlock.run.run_state import fold
from oarlock.run.typed import VERSION, LaterVersion, build, check_version
from oarlock.system.atomic_file import write_durably

_Log = tuple[int, str]  # its generation and task
_AGENT: _Log = (0, "")
_FILE = "watched.json"
_LONGEST = 2 * LINE_LIMIT  # bytes: a line and the one before it


class Ledger:
    """The record's writer; open it only while holding the run's lock."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._spec = run.spec()
        kept = _kept(run)
        self.positions = {} if kept is None else kept.positions
        self.records = {} if kept is None else kept.records  # events read of each of the leader's records
        self._sizes = _whole_lines(run) if kept is None else kept.sizes
        self._waiting: dict[str, list[str]] = {}  # lines by file, until the next commit
        self._output: dict[_Log, list[str]] = {}  # the same for tasks' output
        self._begun: dict[_Log, str] = {}  # lines that tasks have begun since then
        self._committed: dict[str, Any] = {}
        self._roll_back()
        # Events that were taken before the commit was lost.
        self._events = {} if kept is not None else Counter(run_events.encode(event) for event in run.events())
        self._stamps = {} if kept is not None else _last_stamps(run)
        self.state = fold(run.name, run.events())
        self._logs = log_segments.Logs(run.path / "logs", self._spec.limits.logs)
        if kept is None:
            self.commit()

    @property
    def machines(self) -> int:
        """The number of pods by the last `scale`."""
        return TargetSize(self._spec, self.state.workers).machines

    def take(self, uid: str, pod: str, stamp: str, text: str) -> None:
        """Take one line of a pod's log."""
        said = pod_lines.parse(text)
        if isinstance(said, pod_lines.EventLine):
            self._take_event(said)
        elif isinstance(said, pod_lines.TaskLine):
            key = said.generation, said.task
            if not said.is_whole:
                self._begun[key] = said.text
                return
            self._begun.pop(key, None)
            self.take_output(said.generation, said.task, stamp, said.text)
        else:
            if stamp > self._stamps.get(_AGENT, ""):
                self._append("agent.log", f"{stamp} {pod}: {text}")

    def take_output(self, generation: int, task: str, stamp: str, text: str) -> None:
        """Take one line of a task's output."""
        if stamp > self._stamps.get((generation, task), ""):
            self._output.setdefault((generation, task), []).append(f"{stamp} {text}")

    def emit(self, kind: str, **fields: Any) -> None:
        """Record an event of the client: what only it can see."""
        self._put({"t": time.time(), "kind": kind, **fields})

    def end(self, state: str, code: int, **fields: Any) -> None:
        """Record the end of the run."""
        self.emit("end", state=state, code=code, **fields)

    def commit(self) -> None:
        """Write what was taken; even without news, which notes when the cluster was last seen."""
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
        for (generation, task), text in self._begun.items():
            first = self.run.log_file(generation, task)
            size = log_segments.end(log_segments.of(first))
            unfinished.write(first, size, text.encode("utf-8", "replace"))
        self._begun.clear()
        kept = {"version": VERSION, **asdict(_Kept(self.positions, self.records, self._sizes))}
        if kept == self._committed:
            os.utime(self.run.path / _FILE)
        else:
            write_durably(self.run.path / _FILE, json.dumps(kept).encode())
            self._committed = kept

    def seal(self) -> None:
        """Write the final state of a run that is over."""
        self.commit()
        write_durably(self.run.path / "result.json", json.dumps(self.state.to_data(), indent=1).encode())

    def _take_event(self, said: pod_lines.EventLine) -> None:
        record = repr(said.record)
        if said.number <= self.records.get(record, 0):
            return  # repeated by a leader that took over
        self.records[record] = said.number
        line = run_events.encode(said.event)
        if self._events.get(line, 0):
            self._events[line] -= 1
        elif said.event["kind"] != "run":  # which was written here before anything ran
            self._put(said.event)

    def _put(self, event: run_events.Event) -> None:
        self.state.apply(event)
        self._append("events.jsonl", run_events.encode(event))

    def _append(self, name: str, line: str) -> None:
        self._waiting.setdefault(name, []).append(line)

    def _roll_back(self) -> None:
        """Cut the files back to the last commit. Missing segments were dropped."""
        files = _files(self.run)
        self._sizes = {name: size for name, size in self._sizes.items() if name in files}
        for name, path in files.items():
            if path.stat().st_size > self._sizes.get(name, 0):
                os.truncate(path, self._sizes.get(name, 0))


def _joined(waiting: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in waiting).encode("utf-8", "replace")


@dataclass
class _Kept:
    positions: dict[str, Position]
    records: dict[str, int]
    sizes: dict[str, int]


def _kept(run: RunFolder) -> _Kept | None:
    """The last commit; None if there is none, or if the files are shorter than it says, as lines may be that
    were not on the disk before a power cut. Raises LaterRun for a later version's."""
    try:
        data = json.loads((run.path / _FILE).read_bytes())
        if not isinstance(data, dict) or not isinstance(data.get("positions"), dict):
            return None
        check_version(data)
        positions = {uid: build(Position, fields) for uid, fields in data["positions"].items()}
        kept = build(_Kept, data, positions=positions)
        files = _files(run)
        is_short = any(path.stat().st_size < kept.sizes.get(name, 0) for name, path in files.items())
        return None if is_short else kept
    except LaterVersion as later:
        raise LaterRun(run.name, later) from None
    except (OSError, ValueError, RecursionError):
        return None


def _files(run: RunFolder) -> dict[str, Path]:
    found = (run.path / "events.jsonl", run.path / "agent.log", *run.path.glob("logs/*/*.log"))
    return {path.relative_to(run.path).as_posix(): path for path in found if path.exists()}


def _whole_lines(run: RunFolder) -> dict[str, int]:
    """The size of each file, without an incomplete line at its end."""
    return {
        name: path.stat().st_size - len(_end(path).rpartition(b"\n")[2]) for name, path in _files(run).items()
    }


def _last_stamps(run: RunFolder) -> dict[_Log, str]:
    """The newest stamp in each log."""
    found = {_AGENT: [run.path / "agent.log"]}
    for generation in log_segments.generations(run.path / "logs"):
        for task, parts in log_segments.listed(run.path / "logs" / str(generation)).items():
            found[generation, task] = [part.path for part in parts]
    return {
        log: max((_last_stamp(path) for path in paths if path.exists()), default="")
        for log, paths in found.items()
    }


def _last_stamp(path: Path) -> str:
    return _end(path).rpartition(b"\n")[0].rpartition(b"\n")[2].partition(b" ")[0].decode(errors="replace")


def _end(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LONGEST))
        return file.read()
