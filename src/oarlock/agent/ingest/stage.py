"""The ingest stage on one machine: it prepares the data before this machine accepts any task.

An inner host runs it as a task of its own, so that it has logs, events and an exit code like any other. A
machine is not ready (`Host.is_preparing`) until its data is. If another run prepares the same data, this one
waits for it. If the task is killed, it restarts; if it fails, the run fails, with the task's own message. A
machine that cannot see the leader's folder copies the data from there.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

from oarlock.agent.host.host import Host
from oarlock.agent.host.host_effects import Upstream
from oarlock.agent.host.real_machine import RealMachine
from oarlock.agent.host.zygote_link import ZygoteLink
from oarlock.agent.ingest import data_copy
from oarlock.agent.ingest.data_folder import DataFolder
from oarlock.agent.net.deadlines import Action
from oarlock.agent.net.loop import Loop, LoopPart
from oarlock.agent.protocol import failure_fields
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.spec import IngestSpec, Program, Seat, Spec
from oarlock.agent.protocol.wishes import RunTasks
from oarlock.agent.record.run_record import Record
from oarlock.run.cluster import Task, ingest_name
from oarlock.run.contract import Gang
from oarlock.run.run_events import Event

LOCK = "lock of the data folder"  # a deadline
_LOOK = 0.5  # seconds between two attempts to take it
_PASSED_ON = ("task", "report", "error", "note", "warning")  # kinds of events


class IngestStage:
    """Calls `on_done` once the data is ready. A failure goes to `upstream` as `never_ready`."""

    def __init__(
        self,
        loop: Loop,
        spec: Spec,
        record: Record,
        seat: Seat,
        leads: bool,
        upstream: Upstream,
        on_done: Action,
        leader: tuple[str, int] | None = None,
    ) -> None:
        self._loop = LoopPart(loop, "ingest: ")
        self._spec = spec
        self._record = record
        self._upstream = upstream
        self._on_done = on_done
        ingest = spec.ingest
        self._ingest = ingest if ingest is not None and _is_for(ingest, seat, leads) else None
        role, _, index = ingest_name(seat.name, leads, ingest.where if ingest else "").rpartition("-")
        self._task = Task(role, int(index), rank=0)
        self._folder = DataFolder(Path(spec.folders.get("data", "")))
        self._generation = record.state.generation + 1  # for its log: the generation that waits for it
        self._left = spec.limits.restarts
        self._is_started = False
        self._said: list[Event] = []  # how the task ended, and why this machine will never be ready
        self._waits = False
        self._lock: int | None = None
        self._host: Host | None = None
        self._steps: list[Program] = []
        self._leader = leader  # where to copy the data from, if that is possible
        self.is_due = self._ingest is not None and not self._is_done(self._ingest)

    def start(self) -> None:
        """Prepare the data, or report that it is ready."""
        if self._ingest is None:
            return
        if self.is_due:
            self._take_lock(self._ingest)
        else:
            self._say_done()
            # It may be large, and the loop must not wait for it.
            threading.Thread(target=self._folder.clear_leftovers, daemon=True).start()

    def start_or_repeat(self) -> None:
        """Start at the first call. Later calls report again how the task ended, if it has."""
        if not self._is_started:
            self._is_started = True
            self.start()
        for event in self._said:
            self._upstream.on_event(dict(event))

    def close(self) -> None:
        """End the task if it is running, and free the lock."""
        self._loop.cancel(LOCK)
        host, self._host = self._host, None
        if host is not None:
            host.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _is_done(self, ingest: IngestSpec) -> bool:
        return self._folder.is_done(self._spec.run, ingest.when)

    def _say_done(self) -> None:
        made = self._folder.made_by() or {}
        self._note(f"ingest: done by {made.get('run')}; the data is in {self._folder.target}")

    def _take_lock(self, ingest: IngestSpec) -> None:
        try:
            self._lock = self._folder.try_lock(self._spec.run)
        except OSError as problem:
            self._fail(f"{problem.filename or self._folder.work} cannot be locked: {problem.strerror}")
            return
        if self._lock is None:
            if not self._waits:
                self._waits = True
                self._note(f"ingest: waiting for {self._folder.holder()}, which prepares the same data")
            self._loop.after(LOCK, _LOOK, lambda: self._take_lock(ingest))
        elif self._is_done(ingest):
            self._say_done()
            self._folder.drop_work()
            self._finish()
        else:
            self._begin(ingest)

    def _begin(self, ingest: IngestSpec) -> None:
        from oarlock.agent.ingest import steps  # loads HTTP, which an agent without data does not need

        if self._leader is not None:
            self._steps = [data_copy.program(self._spec, ingest, self._folder, self._leader)]
        else:
            self._steps = steps.programs(self._spec, ingest, self._folder)
        self._run(ingest, self._steps.pop(0))

    def _run(self, ingest: IngestSpec, program: Program) -> None:
        """Start a step in its own host."""
        name = self._task.name
        env = {**self._spec.env, **ingest.env}
        spec = replace(
            self._spec, program=program, env=env, sizes={"ingest": 1}, modules=[], warm=False, keep=0.0
        )
        machine = _IngestMachine(self._loop, spec, self._record, self._folder)
        seat = Seat(name, {self._task.role: 1})
        self._host = Host(self._loop, spec, seat, machine, ZygoteLink(self._loop, spec), self)
        gang = Gang(
            run=spec.run,
            generation=self._generation,
            tasks=(self._task,),
            addresses={name: f"{spec.bind}:{self._host.ports[0]}"},
            seed=spec.seed,
        )
        self._host.start()
        self._host.obey(RunTasks(gang, {name: [name]}))

    # From the inner host

    def on_event(self, event: Event) -> None:
        """Pass on the task's events. Those about the inner host are of no interest."""
        if event["kind"] == "never_ready":
            self._fail(event["text"])
        elif event["kind"] in _PASSED_ON:
            if event["kind"] == "task":
                self._said = [event] if event["state"] == "ended" else []
            self._upstream.on_event(event)

    def on_status(self) -> None:
        """Take the next step once the task has ended."""
        host = self._host
        ended = next((one for one in host.status().tasks if not one.is_alive), None) if host else None
        if ended is not None:  # later: the host is in the middle of something
            self._loop.soon(lambda: self._on_end(host, ended))

    def _on_end(self, host: Host | None, ended: Outcome) -> None:
        if host is not self._host or self._host is None or self._ingest is None:
            return
        self._host.close()
        self._host = None
        if ended.code == 0 and self._steps:
            self._run(self._ingest, self._steps.pop(0))
        elif ended.code == data_copy.EACH and self._leader is not None:
            self._leader = None
            self._begin(self._ingest)
        elif ended.code == 0:
            self._finish()
        elif ended.signal is not None and self._left > 0:
            self._left -= 1
            self._note(f"{self._task.name} ended: {failure_fields.describe(ended)['reason']}; it runs again")
            self._begin(self._ingest)
        else:
            fields = failure_fields.describe(ended)
            self._fail(fields.pop("reason"), code=failure_fields.exit_code(ended), **fields)

    def _finish(self) -> None:
        self.is_due = False
        self.close()
        self._on_done()

    def _fail(self, why: str, **fields: object) -> None:
        event = {"kind": "never_ready", "text": why, **fields}
        self._said.append(event)
        self._upstream.on_event(event)

    def _note(self, text: str) -> None:
        self._upstream.on_event({"kind": "note", "text": text})


def _is_for(ingest: IngestSpec, seat: Seat, leads: bool) -> bool:
    """Whether this machine prepares data: one for all, or each for itself, except parameter servers."""
    if ingest.when == "never":
        return False
    return leads if ingest.where == "leader" else set(seat.slots) != {"ps"}


class _IngestMachine(RealMachine):
    """This machine, with the folders that an ingest writes to."""

    def __init__(self, loop: Loop, spec: Spec, record: Record, folder: DataFolder) -> None:
        super().__init__(loop, spec, record)
        self._folder = folder

    def folders(self, task: Task) -> dict[str, str]:
        """Point the data to the draft next to its final place."""
        own = {"data": str(self._folder.draft), "sources": str(self._folder.sources)}
        return {**self._spec.folders, **own}
