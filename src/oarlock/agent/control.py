"""Asking a run's leading agent something, from the machine it runs on (in a pod: through exec)."""

from __future__ import annotations

import socket
from pathlib import Path

from oarlock.agent import wire
from oarlock.agent.wire import Message, Unpacker, WireError

_DEADLINE = 10.0


class UnreachableError(Exception):
    """Nobody answers where the run's leading agent should be."""


def ask(folder: Path, question: Message, token_file: Path | None = None) -> Message:
    """One question, one answer. Raises UnreachableError."""
    try:
        host, port = (folder / "address").read_text().strip().rsplit(":", 1)
        token = (token_file or folder / "token").read_text().strip()
        with socket.create_connection((host, int(port)), timeout=_DEADLINE) as line:
            return Dialogue(line, token).ask(question)
    except (OSError, ValueError, WireError) as error:
        raise UnreachableError(f"its agent does not answer: {error}") from error


class Dialogue:
    """Over a blocking socket, whose timeout is the deadline of every answer."""

    def __init__(self, line: socket.socket, token: str) -> None:
        self._line = line
        self._unpacker = Unpacker()
        self._waiting: list[Message] = []
        challenge, hello, nonce = str(self._next().get("challenge")), {"client": True}, wire.nonce()
        proof = wire.proof(token, "agent", challenge, nonce, hello)
        self._line.sendall(wire.pack({"hello": hello, "nonce": nonce, "proof": proof}))
        if not wire.is_proof(self._next().get("welcome"), token, "coordinator", nonce, challenge):
            raise WireError("somebody else listens there")
        self._unpacker.limit = wire.MEMBER_LIMIT

    def ask(self, question: Message) -> Message:
        self._line.sendall(wire.pack(question))
        return self._next()

    def rest(self) -> bytes:
        """What has come after the last answer, where bytes follow that are no messages."""
        return self._unpacker.rest()

    def _next(self) -> Message:
        while not self._waiting:
            data = self._line.recv(1 << 16)
            if not data:
                raise WireError("the connection was closed")
            self._waiting += self._unpacker.feed(data)
        return self._waiting.pop(0)
