"""One TCP connection in the loop: frames out without blocking, frames in with a deadline on silence.

Whatever goes wrong while a frame is heard closes this connection, and never ends the loop.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.wire import MEMBER_LIMIT, Message, Seal, Unpacker, WireError, pack, sealed

SILENCE = 5.0  # seconds without a byte from the other side, who speaks every second
HEARTBEAT = 1.0
_BACKLOG = 4 * MEMBER_LIMIT  # bytes waiting for somebody who does not read
_serial = 0


class Connection:
    """`on_message(message)` for each frame; `on_close(why)` once, whoever closed it; `on_bad_message(error)`
    before that, where what was heard made no sense."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None],
        silence: float = SILENCE,
    ) -> None:
        global _serial
        _serial += 1
        self.name = f"connection {_serial}"
        self.loop = loop
        self.sock = sock
        self.on_message = on_message
        self.on_close = on_close
        self.on_bad_message: Callable[[Exception], None] = lambda error: None
        self.silence = silence
        self.heard_at = time.monotonic()
        self.is_open = True
        self._unpacker = Unpacker()
        self._seal: Seal | None = None
        self._out = bytearray()
        sock.setblocking(False)
        keep_alive(sock)
        self._watch()
        self._expect()

    def expect(self, key: bytes) -> None:
        """What is heard next must be sealed with this."""
        self._unpacker.seal = Seal(key)

    def speak(self, key: bytes) -> None:
        """What is sent from now on is sealed with this."""
        self._seal = Seal(key)

    def trust(self) -> None:
        """The other side has shown the token: it may send large frames."""
        self._unpacker.limit = MEMBER_LIMIT

    def send(self, message: Message) -> None:
        """Send one message without blocking."""
        self.send_packed(pack(message))

    def send_packed(self, frame: bytes) -> None:
        """Send a frame of `pack`, which may go to many. Too much that waits unread closes the connection."""
        if not self.is_open:
            return
        if self._seal is not None:
            frame = sealed(frame, self._seal)
        if len(self._out) + len(frame) > _BACKLOG:
            self.close("it does not read what it is sent")
            return
        self._out += frame
        self._write()

    def close(self, why: str) -> None:
        """Close for good and tell `on_close` why. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self.loop.cancel(self.name)
            self.loop.forget(self.sock)
            self.sock.close()
            self.on_close(why)

    def detach(self) -> tuple[socket.socket, Seal, bytes]:
        """Give the socket away: from now on somebody else speaks, with this seal, after these bytes."""
        assert self._seal is not None
        self.is_open = False
        self.loop.cancel(self.name)
        self.loop.forget(self.sock)
        return self.sock, self._seal, bytes(self._out)

    def _write(self) -> None:
        try:
            while self._out:
                sent = self.sock.send(self._out)
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            # It listens no more, but what it said before it went may still be unread; reading tells the end.
            self._out.clear()
        self._watch()

    def _read(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(str(error.strerror or error))
            return
        if not data:
            self.close("closed by the other side")
            return
        self.heard_at = time.monotonic()
        self._expect()
        try:
            for message in self._unpacker.feed(data):
                if self.is_open:
                    self.on_message(message)
        except Exception as error:  # not WireError alone: nobody's words may end the loop
            self.on_bad_message(error)
            self.close(str(error) if isinstance(error, WireError) else f"{type(error).__name__} at its words")

    def _watch(self) -> None:
        self.loop.watch(self.sock, self._read, self._write if self._out else None)

    def _expect(self) -> None:
        self.loop.after(self.name, self.silence, lambda: self.close(f"silent for {self.silence:g} s"))


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel notice a machine that vanished without a word (measured: 4 s, never otherwise)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 2),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 5000),
    ):
        if hasattr(socket, option):  # Linux
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
