"""One TCP connection in the loop: it sends frames without blocking, and closes if the other side is silent.

An error in the handling of a frame closes this connection but never ends the loop.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.wire import MEMBER_LIMIT, Message, Seal, Unpacker, WireError, pack, sealed

SILENCE = 5.0  # seconds without a byte from the other side, which sends a heartbeat every second
HEARTBEAT = 1.0
_BACKLOG = 4 * MEMBER_LIMIT  # bytes that may wait for a peer that does not read
_serial = 0


class Connection:
    """Calls `on_message(message)` for each frame and `on_close(why)` once, whichever side closed it. Before
    that, calls `on_bad_message(error)` if a frame could not be read or handled."""

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
        """From the next frame on, accept only frames sealed with this key."""
        self._unpacker.seal = Seal(key)

    def speak(self, key: bytes) -> None:
        """Seal all further frames with this key."""
        self._seal = Seal(key)

    def trust(self) -> None:
        """Allow large frames: the other side has proved that it holds the token."""
        self._unpacker.limit = MEMBER_LIMIT

    def send(self, message: Message) -> None:
        """Send one message without blocking."""
        self.send_packed(pack(message))

    def send_packed(self, frame: bytes) -> None:
        """Send a frame from `pack`, which many connections can share. A backlog too large closes this one."""
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
        """Close for good and call `on_close` with the reason. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self.loop.cancel(self.name)
            self.loop.forget(self.sock)
            self.sock.close()
            self.on_close(why)

    def detach(self) -> tuple[socket.socket, Seal, bytes]:
        """Give the socket away. The caller sends these bytes first, then continues with this seal."""
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
            # The other side has closed. `_read` gets what it sent before, and then the end.
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
        except Exception as error:  # not only WireError: no message may end the loop
            self.on_bad_message(error)
            self.close(
                str(error) if isinstance(error, WireError) else f"{type(error).__name__} at its message"
            )

    def _watch(self) -> None:
        self.loop.watch(self.sock, self._read, self._write if self._out else None)

    def _expect(self) -> None:
        self.loop.after(self.name, self.silence, lambda: self.close(f"silent for {self.silence:g} s"))


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel notice a machine that disappeared (measured: after 4 s; without this, never)."""
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
