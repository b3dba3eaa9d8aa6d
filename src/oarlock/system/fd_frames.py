"""Messages between processes of one machine: a head, then JSON; file descriptors travel with the head.

`send` and `receive` wait for the other side. A `FrameSocket` never does: two sides that both wait for room to
send would wait forever, as happened in a gang of 128.
"""

from __future__ import annotations

import array
import errno
import json
import os
import socket
import struct
from collections import deque
from contextlib import suppress
from typing import Any

_HEAD = struct.Struct("!IH")  # the length of the JSON, and the number of descriptors
_MOST = 8  # descriptors per message
_PIECE = 1 << 16
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # missing on some systems

Message = dict[str, Any]


def send(sock: socket.socket, message: Message, fds: tuple[int, ...] = ()) -> None:
    """Send a message and copies of descriptors. Wait until the socket has accepted all of it."""
    data = _encode(message, fds)
    sent = _send_some(sock, data, fds)
    if sent < len(data):  # even an empty send fails if the receiver has read everything and closed its end
        sock.sendall(data[sent:])


def receive(sock: socket.socket) -> tuple[Message | None, list[int]]:
    """The next message and its descriptors; (None, []) if the other side is gone."""
    try:
        head, fds = _receive_some(sock, _HEAD.size)
        if len(head) < _HEAD.size:
            return None, []
        length, _ = _HEAD.unpack(head)
        body = b""
        while len(body) < length:
            piece = sock.recv(length - len(body))
            if not piece:
                return None, []
            body += piece
    except ConnectionError:
        return None, []
    message: Message = json.loads(body)
    return message, fds


class FrameSocket:
    """One end of a socket that a loop watches for reading, and for writing while it `is_behind`."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)
        self._in = bytearray()
        self._fds: deque[int] = deque()  # received, in the order of their messages
        self._out: deque[tuple[bytes, tuple[int, ...]]] = deque()

    @property
    def is_behind(self) -> bool:
        """Whether messages wait for room in the socket."""
        return bool(self._out)

    def send(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send now, or as soon as there is room. The caller keeps the descriptors, to close at once."""
        self._out.append((_encode(message, fds), tuple(os.dup(fd) for fd in fds)))
        self.flush()

    def flush(self) -> None:
        """Send as much as there is room for. If the other side is gone, `fill` notices it."""
        while self._out:
            data, fds = self._out[0]
            try:
                sent = _send_some(self.sock, data, fds)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:
                    return  # this user has too many descriptors under way, which is like no room
                sent = len(data)
            _close(fds)
            self._out.popleft()
            if sent < len(data):
                self._out.appendleft((data[sent:], ()))

    def fill(self) -> bool:
        """Read what has arrived, for `take`. Returns False once the other side is gone."""
        try:
            piece, fds = _receive_some(self.sock, _PIECE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._in += piece
        self._fds += fds
        return bool(piece)

    def take(self) -> tuple[Message, tuple[int, ...]] | None:
        """The next complete message and its descriptors; None if there is none."""
        if len(self._in) < _HEAD.size:
            return None
        length, count = _HEAD.unpack_from(self._in)
        end = _HEAD.size + length
        if len(self._in) < end:
            return None
        message: Message = json.loads(self._in[_HEAD.size : end])
        del self._in[:end]
        return message, tuple(self._fds.popleft() for _ in range(count))

    def close(self) -> None:
        """Close the socket and all descriptors under way: in a fork they belong to other tasks."""
        _close(self._fds)
        for _, fds in self._out:
            _close(fds)
        self._fds.clear()
        self._out.clear()
        self.sock.close()


def _encode(message: Message, fds: tuple[int, ...]) -> bytes:
    body = json.dumps(message).encode()
    return _HEAD.pack(len(body), len(fds)) + body


def _send_some(sock: socket.socket, data: bytes, fds: tuple[int, ...]) -> int:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    return sock.sendmsg([data], rights)


def _receive_some(sock: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """Receive a piece. The kernel ends it after the first message with descriptors, so these fit."""
    data, rights, _, _ = sock.recvmsg(most, socket.CMSG_SPACE(_MOST * struct.calcsize("i")), _CLOEXEC)
    fds = array.array("i")
    for level, kind, held in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(held[: len(held) - len(held) % fds.itemsize])
    return data, list(fds)


def _close(fds: Any) -> None:
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
