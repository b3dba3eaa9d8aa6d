"""The leading agent's open port, through which agents join and clients ask questions.

A stranger is a connection that has not yet proved that it holds the token. It has HANDSHAKE seconds and 4 KiB
for that, nothing is parsed before its seal is checked, and it costs one socket. At most STRANGERS wait at a
time: one more closes the oldest.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from oarlock.agent.ingest.data_copy import Offer
from oarlock.agent.lead.agents.placement import Agent
from oarlock.agent.lead.conductor import Conductor
from oarlock.agent.net.connection import HEARTBEAT, SILENCE, Connection
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol import messages, wire
from oarlock.agent.protocol.messages import Hello, Question
from oarlock.agent.protocol.wire import VERSION, Message
from oarlock.agent.protocol.wishes import Order, Wish
from oarlock.agent.snapshots.file_sender import KINDS, FileSender
from oarlock.agent.snapshots.program_files import ProgramFolder

HANDSHAKE = 5.0
STRANGERS = 1024
_ACCEPTS = 64  # in one turn, so that a flood of connections does not starve the members
_PAUSE = 1.0  # seconds without the listener when no descriptors are left

Answer = Callable[[Question], Message]


class Coordinator:
    """Listens as soon as it exists. `port` is the actual port, also when 0 was requested."""

    def __init__(
        self, loop: Loop, token: str, bind: str, port: int, conductor: Conductor, answer: Answer
    ) -> None:
        self.loop = loop
        self.token = token
        self.conductor = conductor
        self.answer = answer  # the function that answers a client's question
        self.strangers: dict[Connection, str] = {}  # stranger -> the challenge sent to it
        self.members: set[Connection] = set()
        spec = conductor.spec
        folder = spec.folders.get("checkpoints", "")
        self.file_sender = FileSender(loop, folder, ProgramFolder.of(spec), Offer.of(spec))
        self.listener = socket.create_server((bind, port), backlog=4096)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self._is_full = False  # no descriptors are left, and the record has a note about it
        self._packed: tuple[Wish | Order, bytes] | None = None
        loop.watch(self.listener, self._accept)
        loop.after("heartbeat", HEARTBEAT, self._beat)

    def close(self) -> None:
        """Close the listener and all connections."""
        self.loop.cancel("heartbeat")
        self.loop.cancel("listener")
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
            except OSError as error:  # no descriptors left: close the oldest stranger
                if self.strangers:
                    next(iter(self.strangers)).close("room is needed")
                else:  # the listener stays readable: stop watching it for a moment
                    self._pause_listener(error)
                return
            self._greet(sock)

    def _pause_listener(self, error: OSError) -> None:
        if not self._is_full:
            self._is_full = True
            text = f"no agent or client can connect at the moment: {error.strerror} (said once)"
            self.conductor.record.emit("note", text=text)
        self.loop.forget(self.listener)
        self.loop.after("listener", _PAUSE, lambda: self.loop.watch(self.listener, self._accept))

    def _greet(self, sock: socket.socket) -> None:
        if len(self.strangers) >= STRANGERS:
            next(iter(self.strangers)).close("too many connections without proof")
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
        stranger.on_bad_message = lambda error: self.conductor.machine.dropped.add("strangers", error)
        challenge = self.strangers[stranger] = wire.nonce()
        stranger.send({"version": VERSION, "challenge": challenge})
        stranger.expect(wire.greeting_key(self.token, challenge))

    def _drop(self, stranger: Connection) -> None:
        self.strangers.pop(stranger, None)
        self.loop.cancel(f"handshake of {stranger.name}")

    def _admit(self, stranger: Connection, message: Message) -> None:
        greeting = messages.greeting(message)
        session = wire.session(self.token, self.strangers[stranger], greeting.nonce)
        self._drop(stranger)
        stranger.expect(session.agent)
        stranger.speak(session.coordinator)
        stranger.trust()
        stranger.send({"welcome": 1})
        if greeting.hello is None:
            self._serve(stranger)
        else:
            self._seat(stranger, greeting.hello)

    def _serve(self, connection: Connection) -> None:
        connection.on_bad_message = lambda error: self.conductor.machine.dropped.add("a client", error)
        connection.on_message = lambda message: self._answer(connection, messages.question(message))

    def _answer(self, connection: Connection, question: Question) -> None:
        if question.ask in KINDS:
            self.file_sender.send(connection.detach(), question)
        else:
            connection.send(self.answer(question))

    def _seat(self, connection: Connection, hello: Hello) -> None:
        agent = Agent(
            hello.name, hello.uid, hello.machine, hello.host, lambda wish: self._send(connection, wish)
        )
        connection.silence = SILENCE
        connection.on_bad_message = lambda error: self.conductor.machine.dropped.add(agent.name, error)
        connection.on_message = lambda message: self._hear(agent, message)
        connection.on_close = lambda why: self._part(connection, agent, why)
        self.members.add(connection)
        refusal = self.conductor.join(agent)
        if refusal is not None:
            self.members.discard(connection)
            connection.on_close = lambda _: None
            connection.send({"refused": refusal})
            connection.close("refused")  # a frame this short is already in the socket's buffer

    def _part(self, connection: Connection, agent: Agent, why: str) -> None:
        self.members.discard(connection)
        self.conductor.leave(agent, why)

    def _hear(self, agent: Agent, message: Message) -> None:
        said = messages.said(message)
        for event in said.events:
            self.conductor.hear_event(agent, event)
        if said.status is not None:
            self.conductor.hear(agent, said.status)
        if said.bye is not None:
            self.conductor.leave(agent, said.bye, for_good=True)

    def _send(self, connection: Connection, wish: Wish | Order) -> None:
        """Send a wish, packed once for all agents: a thousand of them get the same thousand addresses."""
        if self._packed is None or self._packed[0] is not wish:
            self._packed = (wish, wire.pack({"wish": wish.to_data()}))
        connection.send_packed(self._packed[1])

    def _beat(self) -> None:
        for connection in list(self.members):
            connection.send_packed(_BEAT)
        self.loop.after("heartbeat", HEARTBEAT, self._beat)


_BEAT = wire.pack({"beat": 1})
