"""The leading agent's open port: strangers prove themselves, agents join, clients ask.

A stranger has HANDSHAKE seconds and 4 KiB to show the token. At most STRANGERS of them wait at a
time; one more, and the one that has waited longest is closed. Whoever fails costs one socket.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from oarlock.agent import handing, shapes, wire
from oarlock.agent.conductor import Conductor
from oarlock.agent.connection import HEARTBEAT, SILENCE, Connection
from oarlock.agent.loop import Loop
from oarlock.agent.placing import Agent
from oarlock.agent.wire import Message, WireError

HANDSHAKE = 5.0
STRANGERS = 1024
_ACCEPTS = 64  # at one go, so that a flood does not starve the members

Answer = Callable[[Message], Message]


class Coordinator:
    def __init__(
        self, loop: Loop, token: str, bind: str, port: int, conductor: Conductor, answer: Answer
    ) -> None:
        self.loop = loop
        self.token = token
        self.conductor = conductor
        self.answer = answer  # to a client's question
        self.strangers: dict[Connection, str] = {}  # and the nonce each was given
        self.members: set[Connection] = set()
        self.listener = socket.create_server((bind, port), backlog=4096)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self._packed: tuple[Message, bytes] | None = None
        loop.watch(self.listener, self._accept)
        loop.after("heartbeat", HEARTBEAT, self._beat)

    def close(self) -> None:
        self.loop.cancel("heartbeat")
        self.loop.forget(self.listener)
        self.listener.close()
        for connection in [*self.strangers, *self.members]:
            connection.close("the run is over")

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptors left: make room at the strangers' cost
                if self.strangers:
                    next(iter(self.strangers)).close("room is needed")
                return
            self._greet(sock)

    def _greet(self, sock: socket.socket) -> None:
        if len(self.strangers) >= STRANGERS:
            next(iter(self.strangers)).close("too many wait")
        stranger = Connection(
            self.loop,
            sock,
            lambda message: self._admit(stranger, message),
            lambda _: self._drop(stranger),
            HANDSHAKE,
        )
        self.loop.after(
            f"handshake of {stranger.name}", HANDSHAKE, lambda: stranger.close("no proof in time")
        )
        self.strangers[stranger] = wire.nonce()
        stranger.send({"challenge": self.strangers[stranger]})

    def _drop(self, stranger: Connection) -> None:
        self.strangers.pop(stranger, None)
        self.loop.cancel(f"handshake of {stranger.name}")

    def _admit(self, stranger: Connection, message: Message) -> None:
        ours = self.strangers[stranger]
        hello, theirs = message.get("hello"), message.get("nonce")
        if not isinstance(hello, dict) or not isinstance(theirs, str):
            raise WireError("not a greeting")
        if not wire.is_proof(message.get("proof"), self.token, "agent", ours, theirs, hello):
            raise WireError("it does not hold this run's token")
        self._drop(stranger)
        stranger.trust()
        stranger.send({"welcome": wire.proof(self.token, "coordinator", theirs, ours)})
        if hello.get("client"):
            self._serve(stranger)
        else:
            self._seat(stranger, hello)

    def _serve(self, connection: Connection) -> None:
        connection.on_message = lambda question: self._answer(connection, question)

    def _answer(self, connection: Connection, question: Message) -> None:
        if question.get("ask") == "checkpoint":
            folder = self.conductor.spec.folders["checkpoints"]
            handing.give(connection.detach(), folder, str(question.get("name")))
        else:
            connection.send(self.answer(question))

    def _seat(self, connection: Connection, hello: Message) -> None:
        agent = _agent(hello, lambda wish: self._wish(connection, wish))
        connection.silence = SILENCE
        connection.on_message = lambda message: self._hear(agent, message)
        connection.on_close = lambda why: self._part(connection, agent, why)
        self.members.add(connection)
        refusal = self.conductor.join(agent)
        if refusal is not None:
            self.members.discard(connection)
            connection.on_close = lambda _: None
            connection.send({"refused": refusal})
            connection.close("refused")  # a line that short is in the kernel's hands by now

    def _part(self, connection: Connection, agent: Agent, why: str) -> None:
        self.members.discard(connection)
        self.conductor.leave(agent, why)

    def _hear(self, agent: Agent, message: Message) -> None:
        events = message.get("events", [])
        if not isinstance(events, list):
            raise WireError("events that are no list")
        for event in events:
            self.conductor.hear_event(agent, shapes.event(event))
        if "status" in message:
            self.conductor.hear(agent, shapes.status(message["status"]))
        if "bye" in message:
            self.conductor.leave(agent, str(message["bye"]), for_good=True)

    def _wish(self, connection: Connection, wish: Message) -> None:
        """Packed once for all: a thousand agents get the same thousand addresses."""
        if self._packed is None or self._packed[0] is not wish:
            self._packed = (wish, wire.pack({"wish": wish}))
        connection.send_packed(self._packed[1])

    def _beat(self) -> None:
        for connection in list(self.members):
            connection.send_packed(_BEAT)
        self.loop.after("heartbeat", HEARTBEAT, self._beat)


_BEAT = wire.pack({"beat": 1})


def _agent(hello: Message, wish: Callable[[Message], None]) -> Agent:
    fields: list[tuple[str, Any]] = [("name", str), ("uid", str), ("born", (int, float)), ("host", str)]
    for name, kind in fields:
        if not isinstance(hello.get(name), kind):
            raise WireError(f"a greeting without {name}")
    return Agent(hello["name"], hello["uid"], float(hello["born"]), hello["host"], wish)
