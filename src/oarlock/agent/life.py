"""An agent's life: a host in every agent, a conductor and an open port in the leading one.

leading     host <-> conductor <-> coordinator (TCP) <-> other agents, clients
following   host <-> link (TCP) <-> the leading agent
"""

from __future__ import annotations

import secrets
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from oarlock.agent.conductor import Conductor
from oarlock.agent.coordinator import Coordinator
from oarlock.agent.crew import Crew
from oarlock.agent.host import Host
from oarlock.agent.link import Link
from oarlock.agent.loop import Loop
from oarlock.agent.placing import Agent
from oarlock.agent.record import Record
from oarlock.agent.spec import Spec

_FAREWELL = 5.0  # seconds for the others to leave before we do
_PREEMPTED = 143

Message = dict[str, Any]


def lead(spec: Spec, record: Record, machine: int) -> int:
    """Host this machine's tasks and conduct the gang, to the verdict."""
    loop = Loop()
    conductor = Conductor(loop, spec, record)
    token = read_token(spec)
    coordinator = Coordinator(
        loop, token, spec.bind, spec.port, conductor, lambda ask: _answer(ask, conductor, host)
    )
    _publish(spec, coordinator.port)

    def tell(event: Message | None) -> None:
        if event is None:
            conductor.hear(me, host.status())
        else:
            conductor.hear_event(me, {"t": time.time(), **event})

    host = Host(loop, spec, record, spec.name_of(machine), spec.slots_of(machine), tell)
    me = Agent(
        host.name,
        secrets.token_hex(8),
        time.time(),
        spec.bind,
        lambda wish: loop.soon(lambda: host.obey(wish)),
    )
    crew = Crew(loop, spec, lambda name, code: record.emit("note", text=f"agent {name} ended with {code}"))

    def on_signal(number: int) -> None:
        if number == signal.SIGINT:
            conductor.on_user_stop()
        elif number == signal.SIGTERM:
            conductor.on_preempted()
        elif number == signal.SIGCHLD:
            crew.look_after()

    loop.on_signals([signal.SIGINT, signal.SIGTERM, signal.SIGCHLD], on_signal)
    host.start()
    conductor.start()
    conductor.join(me)
    if spec.brings_crew:
        crew.start()
    while conductor.code is None:
        loop.turn()
    crew.dismiss()
    loop.after("farewell", _FAREWELL, lambda: None)
    while coordinator.members and loop.expects("farewell"):
        loop.turn()
    coordinator.close()
    host.close()
    crew.close()
    return conductor.code


def follow(spec: Spec, record: Record, machine: int, address: tuple[str, int], bind: str) -> int:
    """Host this machine's tasks for a conductor elsewhere, until it says that the run is over."""
    spec = replace(spec, bind=bind)
    loop = Loop()
    code: list[int] = []

    def tell(event: Message | None) -> None:
        if event is None:
            link.send({"status": host.status()})
        else:
            link.send({"events": [{"t": time.time(), **event}]})

    def on_wish(wish: Message) -> None:
        if wish["do"] == "over":
            code.append(int(wish["code"]))
        else:
            host.obey(wish)

    def on_fence() -> None:
        record.complain("no coordinator for too long: this machine's tasks are ended")
        host.fence()
        loop.after("fence", spec.limits.rendezvous, on_nobody)

    def on_nobody() -> None:
        record.complain(f"no coordinator within limits.rendezvous ({spec.limits.rendezvous:g} s)")
        code.append(1)

    def on_refused(why: str) -> None:
        record.complain(f"refused by the coordinator: {why}")
        code.append(_PREEMPTED)

    def on_signal(number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            host.obey({**host.wish, "do": "stop"})
            loop.after("leave", spec.limits.grace + 1, lambda: code.append(_PREEMPTED))
            leaving.append(True)

    leaving: list[bool] = []
    host = Host(loop, spec, record, spec.name_of(machine), spec.slots_of(machine), tell)
    hello = {"name": host.name, "uid": secrets.token_hex(8), "born": time.time(), "host": bind}
    link = Link(loop, address, read_token(spec), hello, on_wish, lambda: tell(None), on_fence, on_refused)
    loop.on_signals([signal.SIGINT, signal.SIGTERM], on_signal)
    host.start()
    link.start()
    loop.after("fence", spec.limits.rendezvous, on_nobody)  # until it is first heard of
    while not code:
        loop.turn()
        if leaving and host.cleared >= host.generation:
            code.append(_PREEMPTED)
    if leaving:
        link.send({"bye": "it was asked to leave"})
    link.close()
    host.close()
    return code[0]


def read_token(spec: Spec) -> str:
    return Path(spec.token).read_text().strip()


def _publish(spec: Spec, port: int) -> None:
    """Where clients on this machine find us."""
    address = Path(spec.folder) / "address"
    draft = address.with_suffix(".part")
    draft.write_text(f"{spec.bind}:{port}\n")
    draft.replace(address)


def _answer(question: Message, conductor: Conductor, host: Host) -> Message:
    ask = question.get("ask")
    if ask == "stacks":
        conductor.show_stacks()
        return {"ok": True}
    if ask == "scale" and type(question.get("workers")) is int:
        refusal = conductor.scale(question["workers"])
        return {"ok": False, "why": refusal} if refusal else {"ok": True, **conductor.formation}
    return {"ok": False, "why": f"no such question: {ask}"}
