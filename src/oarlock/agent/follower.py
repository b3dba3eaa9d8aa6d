"""A following agent: it hosts this machine's tasks for a conductor on another machine.

host <-> link (TCP) <-> the leading agent
"""

from __future__ import annotations

import secrets
import signal
import time
from dataclasses import replace

from oarlock.agent.host.host import Host
from oarlock.agent.host.real_machine import RealMachine
from oarlock.agent.host.zygote_link import ZygoteLink
from oarlock.agent.ingest.stage import IngestStage
from oarlock.agent.net.link import Link
from oarlock.agent.net.loop import Loop
from oarlock.agent.orphans import Reaping
from oarlock.agent.protocol.messages import Hello
from oarlock.agent.protocol.spec import Seat, Spec
from oarlock.agent.protocol.wishes import Halt, Order, Over, Part, RunTasks, Wish
from oarlock.agent.record.run_record import Record
from oarlock.agent.snapshots.evaluator_feed import EvaluatorFeed
from oarlock.agent.snapshots.program_files import ProgramFolder
from oarlock.agent.snapshots.transfer import Getting
from oarlock.agent.spec_files import read_token
from oarlock.run.contract import PREEMPTED
from oarlock.run.quick_dataclass import dataclass
from oarlock.run.run_events import Event

# Deadlines
ANSWER, DEPARTURE = "answer", "leave"

_ANSWER = 2.0  # seconds for the conductor to let the gang halt before this machine leaves


@dataclass(frozen=True)
class Departure:
    """Why a following agent ends."""

    code: int
    is_over: bool = False  # the run has ended; otherwise it continues without this machine


class Follower:
    """Connects host and link. It is the host's `Upstream`.

    `machine` identifies this machine, so that an agent restarted on it does not count as a new one.
    """

    def __init__(
        self,
        spec: Spec,
        record: Record,
        seat: Seat,
        leader: tuple[str, int],
        bind: str,
        machine: str | None = None,
    ) -> None:
        self.spec = spec = replace(spec, bind=bind)
        self.record = record
        self.loop = loop = Loop()
        self.departure: Departure | None = None
        token = read_token(spec)
        supply: Getting | None = None
        self.feed: EvaluatorFeed | None = None  # for an evaluator that cannot see the leader's folder
        if spec.is_replaced:  # a pod: only the leader's pod mounts the volume
            program = None if spec.claim == "shared" else ProgramFolder.of(spec)
            folder, patience = spec.folders["checkpoints"], spec.limits.rendezvous
            supply = Getting(loop, leader, token, folder, patience, program)
            if "evaluator" in seat.slots and spec.claim != "shared":
                self.feed = EvaluatorFeed(supply, folder)
                supply.has_unscored = self.feed.is_complete
        machine_here, zygote = RealMachine(loop, spec, record), ZygoteLink(loop, spec)
        self.host = Host(loop, spec, seat, machine_here, zygote, self, supply)
        self.ingest = IngestStage(loop, spec, record, seat, False, self, self._on_ingested, leader)
        self.host.is_preparing = self.ingest.is_due
        uid = secrets.token_hex(8)
        self.link = Link(
            loop,
            leader,
            token,
            Hello(seat.name, uid, machine or uid, bind),
            on_wish=self._on_wish,
            on_joined=self._on_joined,
            on_fence=self._on_fence,
            on_refused=self._on_refused,
            complain=record.complain,
        )

    def run(self) -> Departure:
        """Host tasks until the leading agent says that the run is over, or this machine has to leave."""
        Reaping(self.loop)
        self.loop.on_signals([signal.SIGINT, signal.SIGTERM], self._on_signal)
        self.host.start()
        if self.feed is not None:
            self.feed.start()
        self.link.start()
        self.link.wait_for_leader(self.spec.limits.rendezvous, self._on_no_leader)
        while self.departure is None:
            self.loop.turn()
            if self.host.is_leaving and self.host.is_cleared:
                self._depart(Departure(PREEMPTED))
        if self.host.is_leaving:
            self.link.send({"bye": "it was asked to leave"})
        self.link.close()
        if self.feed is not None:
            self.feed.close()
        self.ingest.close()
        self.host.close()
        return self.departure

    def _depart(self, departure: Departure) -> None:
        """End, for the first reason that is given; later ones do not count."""
        self.departure = self.departure or departure

    # To and from the leading agent

    def on_event(self, event: Event) -> None:
        """Send an event to the leading agent. Without a connection the event is lost."""
        self.link.send({"events": [{"t": time.time(), **event}]})

    def on_status(self) -> None:
        """Send the host's status to the leading agent, also on every new connection."""
        status = self.host.status()
        if self.feed is not None:
            self.feed.is_followed = any(task.follows for task in status.tasks)
        self.link.send({"status": status.to_data()})

    def _on_joined(self) -> None:
        """Prepare the data now that a leader can record it, or repeat the result: it may have been lost."""
        self.on_status()
        self.ingest.start_or_repeat()

    def _on_ingested(self) -> None:
        self.host.is_preparing = False
        self.on_status()

    def _on_wish(self, wish: Wish | Order) -> None:
        if isinstance(wish, Over):
            # An agent that was replaced gets this too; the run is not over then.
            self._depart(Departure(wish.code, is_over=not wish.replaced))
        elif isinstance(wish, Part):
            self._end_tasks()
        else:
            if isinstance(wish, Halt):
                self.loop.cancel(ANSWER)
            elif isinstance(wish, RunTasks) and not wish.is_done and self.feed is not None:
                self.feed.resume()
            self.host.obey(wish)

    def _on_refused(self, why: str) -> None:
        self.record.complain(f"refused by the coordinator: {why}")
        self._depart(Departure(PREEMPTED))

    def _on_fence(self) -> None:
        """There was no leading agent for too long: another machine may be training in place of this one."""
        self.record.complain("no coordinator for too long: this machine's tasks are ended")
        self.host.fence()
        self.link.wait_for_leader(self.spec.limits.rendezvous, self._on_no_leader)

    def _on_no_leader(self) -> None:
        limit = self.spec.limits.rendezvous
        self.record.complain(f"no coordinator within limits.rendezvous ({limit:g} s)")
        self._depart(Departure(1))

    # This machine has to leave

    def _on_signal(self, number: int) -> None:
        if number not in (signal.SIGTERM, signal.SIGINT):
            return
        patience = self.spec.limits.grace + 1
        self.loop.after(DEPARTURE, patience, lambda: self._depart(Departure(PREEMPTED)))
        may_halt = self.host.is_busy and self.link.is_joined and not self.host.is_leaving
        self.host.leave()
        if not may_halt:
            self._end_tasks()
        elif not isinstance(self.host.wish, Halt):
            self.loop.after(ANSWER, _ANSWER, self._end_tasks)

    def _end_tasks(self) -> None:
        self.loop.cancel(ANSWER)
        self.host.end_tasks()
