"""Forward a port of this machine to a port in a pod, through the API server.

Each connection has a websocket of its own (v4.channel.k8s.io, which the kubelet of 1.36 still speaks):
channel 0 is the data, channel 1 says what went wrong, and the first message on either is the port's number.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Optional

from oarlock.engines.kubernetes.api import websocket
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api

_PROTOCOLS = ("v4.channel.k8s.io",)
_DATA, _ERROR = 0, 1
_NUMBER = 2  # bytes of the port's number
_ENOUGH = 1 << 20  # bytes waiting for a slow reader
_TURN = 5.0  # seconds

FindPod = Callable[[], Optional[str]]  # None: there is no pod now, and the connection ends


@contextmanager
def forwarded(api: Api, pod: str | FindPod, port: int, here: socket.socket) -> Iterator[None]:
    """Forward connections to the listening socket `here` to a port of a pod.

    `pod`: its name, or a function that each connection asks for it.
    """
    find = (lambda: pod) if isinstance(pod, str) else pod
    accepting = threading.Thread(
        target=_accept, args=(api, find, port, here), name=f"forwarding to port {port}", daemon=True
    )
    accepting.start()
    try:
        yield
    finally:
        here.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts, which closing would not
        accepting.join()
        here.close()


def _accept(api: Api, find: FindPod, port: int, here: socket.socket) -> None:
    while True:
        try:
            connection, _ = here.accept()
        except OSError:
            return  # closed: no more connections
        threading.Thread(target=_carry, args=(api, find, port, connection), daemon=True).start()


def _carry(api: Api, find: FindPod, port: int, connection: socket.socket) -> None:
    with closing(connection):
        pod = find()
        if pod is None:
            return
        path = f"api/v1/namespaces/{api.namespace}/pods/{pod}/portforward"
        try:
            with websocket.connected(api, path, {"ports": str(port)}, _PROTOCOLS, "port-forward") as line:
                _Carrier(line, connection).to_its_end()
        except (ApiError, OSError):
            pass  # as on any network: the connection ends, and its user tries again


class _Carrier:
    def __init__(self, line: websocket.Line, connection: socket.socket) -> None:
        self.line = line
        self.connection = connection
        self.coming = bytearray()
        self.has_number: set[int] = set()
        self.is_over = False

    def to_its_end(self) -> None:
        self.connection.setblocking(False)
        while not self.is_over or self.coming:
            self._turn()

    def _turn(self) -> None:
        is_behind = len(self.coming) > _ENOUGH or self.is_over
        reading: list[websocket.Line | socket.socket] = [] if is_behind else [self.line]
        reading += [] if self.line.is_full or self.is_over else [self.connection]
        writing: list[websocket.Line | socket.socket] = [self.line] if self.line.is_full else []
        writing += [self.connection] if self.coming else []
        is_ahead = self.line.is_ahead and not is_behind
        readable, writable, _ = select.select(reading, writing, [], 0 if is_ahead else _TURN)
        if self.line in writable:
            self.line.flush()
        if self.connection in writable:
            del self.coming[: self.connection.send(self.coming)]
        if self.connection in readable:
            data = self.connection.recv(websocket.PIECE)
            if not data:
                raise ConnectionResetError  # the protocol cannot close one direction alone
            self.line.send(bytes([_DATA]) + data)
        if self.line in readable or is_ahead:
            self._hear()
        if not self.is_over:
            self.line.keep_alive()

    def _hear(self) -> None:
        messages = self.line.receive()
        if messages is None:
            self.is_over = True
            return
        for message in messages:
            channel, data = message[0], message[1:]
            if channel not in self.has_number:
                self.has_number.add(channel)
                data = data[_NUMBER:]
            if channel == _DATA:
                self.coming += data
            elif channel == _ERROR and data:
                self.is_over = True
