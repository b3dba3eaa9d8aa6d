"""Messages between agent and zygote: a length, then JSON; file descriptors ride on the length."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("!I")


def send(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    body = json.dumps(message).encode()
    if fds:
        socket.send_fds(sock, [_LENGTH.pack(len(body))], list(fds))
    else:
        sock.sendall(_LENGTH.pack(len(body)))
    sock.sendall(body)


def receive(sock: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next message and its descriptors; (None, []) when the other side is gone."""
    try:
        head, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, 8)
        if len(head) < _LENGTH.size:
            return None, []
        (length,) = _LENGTH.unpack(head)
        body = b""
        while len(body) < length:
            piece = sock.recv(length - len(body))
            if not piece:
                return None, []
            body += piece
    except ConnectionError:
        return None, []
    message: dict[str, Any] = json.loads(body)
    return message, list(fds)
