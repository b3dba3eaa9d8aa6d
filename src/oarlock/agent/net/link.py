"""A following agent's connection to the coordinator. It reconnects whenever the connection breaks.

For a while there may be nothing at the coordinator's address (its pod is being replaced, or the network is
cut), and most often nothing answers at all. Hence the short timeout, and quick retries with jitter.
"""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Callable

from oarlock.agent.net.connection import HEARTBEAT, Connection
from oarlock.agent.net.deadlines import Action
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol import messages, wire, wishes
from oarlock.agent.protocol.messages import Hello
from oarlock.agent.protocol.timing import FENCE
from oarlock.agent.protocol.wire import Message, OtherVersionError
from oarlock.agent.protocol.wishes import Order, Wish

_CONNECT = 1.0
_RETRY = (0.05, 0.15)
_COMPLAINTS = 20


# Deadlines
CONNECT, BEAT, LEADER = "connect", "beat", "leader"


class Link:
    """Calls `on_fence` if nothing arrives from the leading agent for FENCE seconds."""

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        token: str,
        hello: Hello,
        on_wish: Callable[[Wish | Order], None],
        on_joined: Callable[[], None],
        on_fence: Callable[[], None],
        on_refused: Callable[[str], None],
        complain: Callable[[str], None],
    ) -> None:
        self.loop = loop
        self.address = address
        self.token = token
        self.hello = hello
        self.on_wish = on_wish
        self.on_joined = on_joined
        self.on_fence = on_fence
        self.on_refused = on_refused
        self.complain = complain
        self.connection: Connection | None = None
        self.is_joined = False
        self.heard_at = time.monotonic()
        self._complaints: set[str] = set()

    def start(self) -> None:
        """Start to connect, and to send a heartbeat every second. The loop does the rest."""
        self._connect()
        self._beat()

    def wait_for_leader(self, seconds: float, on_silence: Action) -> None:
        """Call `on_silence` then, unless the leading agent sends something, which sets the fence again."""
        self.loop.after(LEADER, seconds, on_silence)

    def send(self, message: Message) -> None:
        """Send a message. Without a connection it is dropped: the next one starts with a whole status."""
        if self.is_joined and self.connection is not None:
            self.connection.send(message)

    def close(self) -> None:
        """Close the connection for good when this agent ends."""
        self.loop.cancel(CONNECT)
        self.loop.cancel(BEAT)
        self.loop.cancel(LEADER)
        if self.connection is not None:
            self.connection.on_close = lambda _: None
            self.connection.close("leaving")

    def _connect(self) -> None:
        self.is_joined = False
        sock = socket.socket()
        sock.setblocking(False)
        outcome = sock.connect_ex(self.address)
        if outcome not in (0, errno.EINPROGRESS):
            sock.close()
            self._retry()
            return
        self.loop.watch(sock, None, lambda: self._connected(sock))
        self.loop.after(CONNECT, _CONNECT, lambda: self._give_up(sock))

    def _connected(self, sock: socket.socket) -> None:
        self.loop.forget(sock)
        self.loop.cancel(CONNECT)
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            sock.close()
            self._retry()
            return
        self.connection = Connection(self.loop, sock, self._greet, lambda _: self._retry())
        self.connection.on_bad_message = self._on_bad_message

    def _give_up(self, sock: socket.socket) -> None:
        self.loop.forget(sock)
        sock.close()
        self._retry()

    def _retry(self) -> None:
        self.is_joined = False
        self.connection = None
        self.loop.after(CONNECT, random.uniform(*_RETRY), self._connect)

    def _greet(self, message: Message) -> None:
        """Answer the challenge. An impostor learns nothing useful from it, and cannot seal its welcome."""
        assert self.connection is not None
        nonce = wire.nonce()
        try:
            challenge = messages.challenge(message)
        except OtherVersionError:
            # This lets the coordinator report it, too.
            self.connection.send(wire.greeting(self.hello.to_data(), nonce))
            raise
        self.connection.speak(wire.greeting_key(self.token, challenge))
        self.connection.send(wire.greeting(self.hello.to_data(), nonce))
        session = wire.session(self.token, challenge, nonce)
        self.connection.speak(session.agent)
        self.connection.expect(session.coordinator)
        self.connection.on_message = self._join

    def _join(self, message: Message) -> None:
        assert self.connection is not None
        self.connection.trust()
        self.connection.on_message = self._hear
        self.is_joined = True
        self._heard()
        self.on_joined()

    def _hear(self, message: Message) -> None:
        self._heard()
        if "wish" in message:
            wish = wishes.from_data(message["wish"])
            # Deferred: an error of ours, raised here, would count as a bad message and close the connection.
            self.loop.soon(lambda: self.on_wish(wish))
        elif "refused" in message:
            self.on_refused(str(message["refused"]))

    def _on_bad_message(self, error: Exception) -> None:
        """Complain once per kind of error. The link still reconnects, until LEADER passes."""
        text = f"the coordinator at {':'.join(map(str, self.address))}: {error or type(error).__name__}"
        if text not in self._complaints and len(self._complaints) < _COMPLAINTS:
            self._complaints.add(text)
            self.complain(text)

    def _heard(self) -> None:
        self.heard_at = time.monotonic()
        self.loop.after(LEADER, FENCE, self.on_fence)

    def _beat(self) -> None:
        self.send({"beat": 1})
        self.loop.after(BEAT, HEARTBEAT, self._beat)
