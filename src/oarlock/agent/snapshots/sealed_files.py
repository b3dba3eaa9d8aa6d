"""Sends files over a connection that has proved the run's token: in chunks, each followed by its seal."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from oarlock.agent.protocol import wire
from oarlock.agent.protocol.wire import SEAL, Seal

_CHUNK = 1 << 20  # bytes under one seal


def send_file(sock: socket.socket, seal: Seal, path: Path, size: int) -> None:
    """Send `size` bytes of a file. Raises OSError if it is shorter by now."""
    chunk = memoryview(bytearray(_CHUNK + SEAL))
    with path.open("rb") as file:
        while size:
            count = min(size, _CHUNK)
            if file.readinto(chunk[:count]) != count:
                raise OSError(f"{path} has become shorter")
            chunk[count : count + SEAL] = seal.of(chunk[:count])
            sock.sendall(chunk[: count + SEAL])
            size -= count


class Incoming:
    """Receives files. A chunk without the right seal is not written."""

    def __init__(self, line: socket.socket, before: bytes, seal: Seal) -> None:
        self._line = line
        self._before = before  # bytes that arrived with the answer
        self._seal = seal
        self._chunk = memoryview(bytearray(_CHUNK + SEAL))

    def into(self, path: Path, size: int) -> None:
        """Write the next `size` bytes to this file."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with os.fdopen(fd, "wb", buffering=0) as file:
            while size:
                chunk = self._next(min(size, _CHUNK))
                file.write(chunk)
                size -= len(chunk)

    def _next(self, size: int) -> memoryview:
        whole = self._chunk[: size + SEAL]
        filled = min(len(self._before), len(whole))
        whole[:filled], self._before = self._before[:filled], self._before[filled:]
        while filled < len(whole):
            count = self._line.recv_into(whole[filled:])
            if not count:
                raise ConnectionError("the leader closed the connection in the middle")
            filled += count
        if not self._seal.fits(bytes(whole[size:]), whole[:size]):
            raise wire.WireError("a piece of a file without this run's seal")
        return whole[:size]
