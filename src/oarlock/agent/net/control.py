"""Asks a run's leading agent a question, from the same machine (in a pod, through exec)."""

from __future__ import annotations

import socket
from pathlib import Path

from oarlock.agent.protocol import messages, wire
from oarlock.agent.protocol.wire import Message, Seal, Unpacker, WireError

_DEADLINE = 10.0


class UnreachableError(Exception):
    """No process answers at the address of the run's leading agent."""


def ask(folder: Path, question: Message, token_file: Path | None = None) -> Message:
    """Ask one question and return the answer. Raises UnreachableError."""
    try:
        host, port = (folder / "address").read_text().strip().rsplit(":", 1)
        token = (token_file or folder / "token").read_text().strip()
        with socket.create_connection((host, int(port)), timeout=_DEADLINE) as line:
            return Dialogue(line, token).ask(question)
    except (OSError, ValueError, WireError) as error:
        raise UnreachableError(f"its agent does not answer: {error}") from error


class Dialogue:
    """Questions over one blocking socket. Its timeout is the deadline for every answer."""

    def __init__(self, line: socket.socket, token: str) -> None:
        self._line = line
        self._unpacker = Unpacker()
        challenge, nonce = messages.challenge(self._next()), wire.nonce()
        self._seal = Seal(wire.greeting_key(token, challenge))
        self._send(wire.greeting({"client": True}, nonce))
        session = wire.session(token, challenge, nonce)
        self._seal, self._unpacker.seal = Seal(session.agent), Seal(session.coordinator)
        self._next()  # the welcome
        self._unpacker.limit = wire.MEMBER_LIMIT

    def ask(self, question: Message) -> Message:
        """Wait for the answer. Raises WireError if the connection ends first, OSError at the deadline."""
        self._send(question)
        return self._next()

    def rest(self) -> tuple[bytes, Seal]:
        """The bytes after the last answer, which are not messages, and the seal that continues."""
        assert self._unpacker.seal is not None
        return self._unpacker.rest(), self._unpacker.seal

    def _send(self, message: Message) -> None:
        self._line.sendall(wire.sealed(wire.pack(message), self._seal))

    def _next(self) -> Message:
        data = b""
        while True:
            for message in self._unpacker.feed(data):
                return message  # only the first: what follows may not be messages
            data = self._line.recv(1 << 16)
            if not data:
                raise WireError("the connection was closed")
