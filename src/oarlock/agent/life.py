"""An agent's life: a host in every agent, a conductor and an open port in the leading one.

leading     host <-> conductor <-> coordinator (TCP) <-> other agents, clients
following   host <-> link (TCP) <-> the leading agent
"""

from __future__ import annotations

import secrets
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oarlock.agent.host import faults
from oarlock.agent.host.host import Host
from oarlock.agent.host.orphans import Reaping
from oarlock.agent.lead.conductor import Conductor
from oarlock.agent.lead.coordinator import Coordinator
from oarlock.agent.lead.local_agents import Crew
from oarlock.agent.lead.placement import Agent
from oarlock.agent.net.link import Link
from oarlock.agent.net.loop import Action, Loop
from oarlock.agent.protocol.messages import Hello, Question
from oarlock.agent.protocol.spec import Seat, Spec
from oarlock.agent.protocol.wishes import Halt, Order, Over, Part, Stop, Wish
from oarlock.agent.record.leadership import LOOK, Tenure
from oarlock.agent.record.run_record import Record
from oarlock.agent.snapshots import children
from oarlock.agent.snapshots.transfer import Getting
from oarlock.run.contract import PREEMPTED

_FAREWELL = 5.0  # seconds for the others to leave before we do
_LATECOMERS = 60.0  # seconds for machines that are being replaced to come and hear that the run is over
_ANSWER = 2.0  # seconds for the conductor to say that it lets the gang halt before we go

Message = dict[str, Any]


def lead(
    spec: Spec, record: Record, seat: Seat, failed: str | None = None, tenure: Tenure | None = None
) -> int:
    """Host this machine's tasks and conduct the gang, to the verdict. `failed` is one from the beginning:
    this machine cannot run anything, and the others are to hear it. `tenure` ends when another leads."""
    loop = Loop()
    Reaping(loop)
    fetched = children.Fetched()
    if failed is None and not record.state.is_final:
        fetched = children.fetch(loop, spec, record)
        failed = fetched.failed
    conductor = Conductor(loop, spec, record)
    # Later than any that is in the store: of two checkpoints of one step the newer one is known by it.
    conductor.generation = max(conductor.generation, fetched.generation)
    uploads = children.Uploads(loop, spec, record)

    def finish(state: str, then: Action) -> None:
        host.oddities.flush()
        conductor.oddities.flush()
        uploads.finish(state, then)

    conductor.last_things = finish
    token = read_token(spec)

    def answer(question: Question) -> Message:
        if question.ask == "leave":
            for _ in range(2):  # the second time is at once
                uploads.hurry()
            conductor.leave_now()
            return {"ok": True}
        return _answer(question, conductor)

    coordinator = Coordinator(loop, token, spec.bind, spec.port, conductor, answer)
    _publish(spec, coordinator.port)

    def tell(event: Message | None) -> None:
        if event is None:
            conductor.hear(me, host.status())
        else:
            conductor.hear_event(me, {"t": time.time(), **event})

    host = Host(loop, spec, record, seat.name, seat.slots, tell)
    me = Agent(
        host.name,
        uid := secrets.token_hex(8),
        uid,
        spec.bind,
        lambda wish: loop.soon(lambda: host.obey(wish)),
        is_leading=True,
    )
    crew = Crew(loop, spec, lambda name, code: record.emit("note", text=f"agent {name} ended with {code}"))

    def on_signal(number: int) -> None:
        if number == signal.SIGINT:
            uploads.hurry()
            conductor.on_user_stop()
        elif number == signal.SIGTERM:
            uploads.hurry(leaves=True)
            if tenure is not None:
                tenure.is_dismissed = True
                tenure.leave(spec.limits.grace)
            conductor.on_preempted()
        elif number == signal.SIGCHLD:
            crew.look_after()

    def look() -> None:
        if tenure is not None and tenure.is_over:
            record.complain("another leads this run now: this machine's tasks are ended")
            record.retire()
            conductor.on_preempted()
        else:
            loop.after("tenure", LOOK, look)

    if tenure is not None:
        conductor.leads = lambda: not tenure.is_over
        look()
    loop.on_signals([signal.SIGINT, signal.SIGTERM, signal.SIGCHLD], on_signal)
    if failed is not None or record.state.is_final:
        conductor.give_up(failed or "")
    elif fetched.signal is not None:
        on_signal(fetched.signal)
    else:
        uploads.start()
        host.start()
        conductor.start()
        conductor.join(me)
    if spec.brings_crew:
        crew.start()
    while conductor.code is None:
        loop.turn()
    if conductor.is_moving:
        uploads.leave()
    crew.dismiss()
    host.close()
    if not conductor.is_moving:  # else they stay, for who takes over
        loop.after("farewell", _FAREWELL, lambda: None)
    if spec.is_replaced and not conductor.is_moving:
        conductor.informed.add(seat.name)
        loop.after("latecomers", _LATECOMERS, lambda: None)
    while (coordinator.members and loop.expects("farewell")) or (
        len(conductor.informed) < conductor.wanted.machines and loop.expects("latecomers")
    ):
        loop.turn()
    coordinator.close()
    crew.close()
    if tenure is not None:
        tenure.leave(0)
    return conductor.code


@dataclass(frozen=True)
class Departure:
    """Why a following agent ends."""

    code: int
    is_over: bool = False  # the run has ended; else it goes on without this machine


def follow(
    spec: Spec,
    record: Record,
    seat: Seat,
    address: tuple[str, int],
    bind: str,
    machine: str | None = None,
) -> Departure:
    """Host this machine's tasks for a conductor elsewhere, until it says that the run is over. `machine`
    names it, where an agent that starts again there must not pass for another one."""
    spec = replace(spec, bind=bind)
    loop = Loop()
    Reaping(loop)
    departure: list[Departure] = []

    def tell(event: Message | None) -> None:
        if event is None:
            link.send({"status": host.status().to_data()})
        else:
            link.send({"events": [{"t": time.time(), **event}]})

    def on_wish(wish: Wish | Order) -> None:
        if isinstance(wish, Over):
            # Told to one whose place another has taken as well, for whom the run is not over.
            departure.append(Departure(wish.code, is_over=not wish.replaced))
        elif isinstance(wish, Part):
            end_tasks()
        else:
            if isinstance(wish, Halt):
                loop.cancel("answer")
            host.obey(wish)

    def on_fence() -> None:
        record.complain("no coordinator for too long: this machine's tasks are ended")
        host.fence()
        loop.after("fence", spec.limits.rendezvous, on_nobody)

    def on_nobody() -> None:
        record.complain(f"no coordinator within limits.rendezvous ({spec.limits.rendezvous:g} s)")
        departure.append(Departure(1))

    def on_refused(why: str) -> None:
        record.complain(f"refused by the coordinator: {why}")
        departure.append(Departure(PREEMPTED))

    def on_signal(number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            loop.after("leave", spec.limits.grace + 1, lambda: departure.append(Departure(PREEMPTED)))
            leaving.append(True)
            may_halt = host.is_busy and link.is_joined and not host.is_leaving
            host.is_leaving = True
            tell(None)
            if not may_halt:
                end_tasks()
            elif not isinstance(host.wish, Halt):
                loop.after("answer", _ANSWER, end_tasks)

    def end_tasks() -> None:
        loop.cancel("answer")
        host.obey(host.wish if isinstance(host.wish, Stop) else Stop(host.wish.generation))

    leaving: list[bool] = []
    host = Host(loop, spec, record, seat.name, seat.slots, tell)
    if spec.is_replaced:  # a pod: only the leader's has the volume
        folder, patience = spec.folders["checkpoints"], spec.limits.rendezvous
        host.getting = Getting(loop, address, read_token(spec), folder, patience)
    uid = secrets.token_hex(8)
    hello = Hello(host.name, uid, machine or uid, bind)
    joined = (on_wish, lambda: tell(None), on_fence, on_refused, record.complain)
    link = Link(loop, address, read_token(spec), hello, *joined)
    loop.on_signals([signal.SIGINT, signal.SIGTERM], on_signal)
    host.start()
    link.start()
    loop.after("fence", spec.limits.rendezvous, on_nobody)  # until it is first heard of
    while not departure:
        loop.turn()
        if leaving and host.cleared >= host.generation:
            departure.append(Departure(PREEMPTED))
    if leaving:
        link.send({"bye": "it was asked to leave"})
    link.close()
    host.close()
    return departure[0]


def make_folders(spec: Spec) -> None:
    for place in spec.folders.values():
        if "://" not in place:
            Path(place).mkdir(parents=True, exist_ok=True)


def read_token(spec: Spec) -> str:
    return Path(spec.token).read_text().strip()


def _publish(spec: Spec, port: int) -> None:
    """Where clients on this machine find us."""
    address = Path(spec.folder) / "address"
    draft = address.with_suffix(".part")
    draft.write_text(f"{spec.bind}:{port}\n")
    draft.replace(address)


def _answer(question: Question, conductor: Conductor) -> Message:
    if question.ask == "stacks":
        conductor.show_stacks()
        return {"ok": True}
    if question.ask == "scale" and question.workers is not None:
        refusal = conductor.scale(question.workers)
        return {"ok": False, "why": refusal} if refusal else {"ok": True, **conductor.formation}
    if question.ask == "fault":
        return faults.inflict(question, conductor)
    return {"ok": False, "why": f"no such question: {question.ask}"}
