"""The leading agent of a run: it hosts this machine's tasks like any other agent, and decides for all.

host <-> conductor <-> coordinator (TCP) <-> other agents, clients
"""

from __future__ import annotations

import secrets
import signal
import time
from pathlib import Path

from oarlock.agent.host.host import Host
from oarlock.agent.host.real_machine import RealMachine
from oarlock.agent.host.zygote_link import ZygoteLink
from oarlock.agent.ingest.stage import IngestStage
from oarlock.agent.lead import client_questions
from oarlock.agent.lead.agents.local_agents import LocalAgents
from oarlock.agent.lead.agents.machine_order import MachineOrder
from oarlock.agent.lead.agents.placement import Agent
from oarlock.agent.lead.conductor import Conductor
from oarlock.agent.lead.coordinator import Coordinator
from oarlock.agent.lead.phase_machine import PhaseMachine
from oarlock.agent.net.deadlines import Action
from oarlock.agent.net.loop import Loop
from oarlock.agent.orphans import Reaping
from oarlock.agent.protocol.messages import Question
from oarlock.agent.protocol.spec import Seat, Spec
from oarlock.agent.protocol.wire import Message
from oarlock.agent.protocol.wishes import Order, Wish
from oarlock.agent.record.board_files import BoardFiles
from oarlock.agent.record.leadership import LOOK, Leadership
from oarlock.agent.record.run_record import Record
from oarlock.agent.snapshots import before_training, transfer
from oarlock.agent.snapshots.before_training import Fetched
from oarlock.agent.snapshots.checkpoint_scores import CheckpointScores
from oarlock.agent.snapshots.children import Uploads
from oarlock.agent.snapshots.program_files import KeptFiles
from oarlock.agent.spec_files import publish_address, read_token
from oarlock.agent.zygote import compile_cache
from oarlock.agent.zygote.handle import ZygoteProcess
from oarlock.run.run_events import Event

# Deadlines
LEADERSHIP, FAREWELL, LATECOMERS = "leadership", "farewell", "latecomers"

_FAREWELL = 5.0  # seconds for the other agents to leave before this one does
_LATECOMERS = 60.0  # seconds for the replacements of lost machines to join and learn that the run is over


def lead(
    spec: Spec,
    record: Record,
    seat: Seat,
    failed: str | None = None,
    leadership: Leadership | None = None,
    has_input: bool = False,
    zygote: ZygoteProcess | None = None,
) -> int:
    """Host this machine's tasks and conduct the gang until the verdict. Returns the exit code.

    `failed`: why this machine cannot run anything; the other agents get it as the verdict. `leadership` is
    over when another agent leads. `has_input`: the leader task reads this process's standard input. `zygote`:
    one that has been started.
    """
    loop = Loop()
    Reaping(loop)
    fetched = Fetched(failed=failed)
    if failed is None and not record.state.is_final:
        fetched = before_training.fetch(loop, spec, record)
    code = Leader(loop, spec, record, seat, fetched, leadership, has_input, zygote).run()
    compile_cache.trim(spec)
    return code


class Leader:
    """Connects host, conductor and coordinator: the host's `Upstream`, the conductor's `Surroundings`."""

    def __init__(
        self,
        loop: Loop,
        spec: Spec,
        record: Record,
        seat: Seat,
        fetched: Fetched,
        leadership: Leadership | None,
        has_input: bool = False,
        zygote: ZygoteProcess | None = None,
    ) -> None:
        self.loop = loop
        self.spec = spec
        self.record = record
        if "logs" in spec.folders:
            record.board = BoardFiles(spec.folders["logs"], spec.folder, spec.run)
        self.fetched = fetched
        self.leadership = leadership
        self.uploads = Uploads(loop, spec, record)
        self.files = KeptFiles(spec, lambda text: record.emit("note", text=text))
        self.checkpoints = CheckpointScores(
            spec.folders.get("checkpoints", ""), lambda text: record.emit("note", text=text)
        )
        seats = MachineOrder(Path(spec.folder) / "seats")
        self.machine = PhaseMachine(loop, spec, record, seats, self, after=fetched.generation)
        self.conductor = Conductor(self.machine)
        self.coordinator = Coordinator(
            loop, read_token(spec), spec.bind, spec.port, self.conductor, self._answer
        )
        machine, link = RealMachine(loop, spec, record, has_input), ZygoteLink(loop, spec, zygote)
        self.host = Host(loop, spec, seat, machine, link, self)
        self.ingest = IngestStage(loop, spec, record, seat, True, self, self._on_ingested)
        self.host.is_preparing = self.ingest.is_due
        uid = secrets.token_hex(8)
        self.agent = Agent(seat.name, uid, uid, spec.bind, self._send_to_host, is_leading=True)
        self.local_agents = LocalAgents(loop, spec, self._on_agent_death)

    def run(self) -> int:
        """Lead until the verdict, then stay until the other agents know it. Returns the exit code."""
        publish_address(self.spec, self.coordinator.port)
        self._check_leadership()
        self.loop.on_signals([signal.SIGINT, signal.SIGTERM, signal.SIGCHLD], self._on_signal)
        self._start()
        while self.machine.code is None:
            self.loop.turn()
        if self.machine.is_moving:
            self.uploads.leave()
        self.local_agents.dismiss()
        self.ingest.close()
        self.host.close()
        self._say_farewell()
        self.coordinator.close()
        self.local_agents.close()
        if self.leadership is not None:
            self.leadership.leave(0)
        return self.machine.code

    def _start(self) -> None:
        if self.fetched.failed is not None or self.record.state.is_final:
            self.conductor.give_up(self.fetched.failed or "")
        elif self.fetched.signal is not None:
            self._on_signal(self.fetched.signal)
        else:
            self.uploads.start()
            self.host.start()
            self.machine.start()
            self.conductor.join(self.agent)
            self.ingest.start()
        if self.spec.brings_crew:
            self.local_agents.start()

    def _say_farewell(self) -> None:
        """Wait until the other agents know that the run is over, unless they stay for the next leader."""
        informed = self.machine.roster.informed
        if not self.machine.is_moving:
            self.loop.after(FAREWELL, _FAREWELL, lambda: None)
        if self.spec.is_replaced and not self.machine.is_moving:
            informed.add(self.agent.name)
            self.loop.after(LATECOMERS, _LATECOMERS, lambda: None)
        while (self.coordinator.members and self.loop.expects(FAREWELL)) or (
            len(informed) < self.machine.target.machines and self.loop.expects(LATECOMERS)
        ):
            self.loop.turn()

    # The host on this machine

    def on_event(self, event: Event) -> None:
        """Pass an event of this machine's host to the conductor, as if it had come from another agent."""
        self.conductor.hear_event(self.agent, {"t": time.time(), **event})

    def on_status(self) -> None:
        """Pass the status of this machine's host to the conductor."""
        self.conductor.hear(self.agent, self.host.status())

    def _on_ingested(self) -> None:
        self.host.is_preparing = False
        self.on_status()

    def _send_to_host(self, wish: Wish | Order) -> None:
        self.loop.soon(lambda: self.host.obey(wish))

    # What the conductor needs

    def is_leading(self) -> bool:
        """Whether no other agent has taken over. That can happen only in pods."""
        return self.leadership is None or not self.leadership.is_over

    def take_over_checkpoints(self, generation: int) -> tuple[list[str], str | None]:
        """Raise the fence in the checkpoint folder, and list the checkpoints to resume from."""
        return transfer.take_over(self.spec.folders.get("checkpoints", ""), self.spec.run, generation)

    def written_files(self) -> str:
        """The version of the files next to the program, if other pods need copies of them."""
        return self.files.version() if self.spec.is_replaced and self.spec.claim != "shared" else ""

    def before_verdict(self, state: str, then: Action) -> None:
        """Log what is kept, report dropped messages, upload the last snapshots, then call `then`."""
        if self.spec.is_replaced:
            self.files.say_what_is_kept()
        if state == "succeeded" and (unused := before_training.unused_weights(self.spec, self.record.folder)):
            self.record.emit("note", text=unused)
        self.host.dropped.flush()
        self.machine.dropped.flush()
        self.uploads.finish(state, then)

    # Clients, signals and other agents

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            self.uploads.hurry()
            self.conductor.on_user_stop()
        elif number == signal.SIGTERM:
            self.uploads.hurry(leaves=True)
            if self.leadership is not None:
                self.leadership.is_dismissed = True
                self.leadership.leave(self.spec.limits.grace)
            self.conductor.on_preempted()
        elif number == signal.SIGCHLD:
            self.local_agents.look_after()

    def _answer(self, question: Question) -> Message:
        if question.ask != "leave":
            return client_questions.answer(question, self.conductor)
        for _ in range(2):  # the second call skips the grace
            self.uploads.hurry()
        self.conductor.leave_now()
        return {"ok": True}

    def _on_agent_death(self, name: str, code: int) -> None:
        self.record.emit("note", text=f"agent {name} ended with {code}")

    def _check_leadership(self) -> None:
        """End this machine's tasks once another agent leads."""
        if self.leadership is None:
            return
        if self.leadership.is_over:
            self.record.complain("another leads this run now: this machine's tasks are ended")
            self.record.retire()
            self.conductor.on_preempted()
        else:
            self.loop.after(LEADERSHIP, LOOK, self._check_leadership)
