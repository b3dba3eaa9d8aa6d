"""The wire between agents and coordinator: frames, and the proof of holding the run's token.

A frame is four bytes of length and a JSON object. Until the proof a frame may have 4 KiB, then
16 MiB. The token never travels: each side answers the other's nonce with an HMAC, so a replayed
proof is worth nothing and a false coordinator is found out too. A stranger's bytes raise
WireError, and cost one closed socket.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
import zlib
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

STRANGER_LIMIT = 4 * 1024
MEMBER_LIMIT = 16 * 1024 * 1024
_LENGTH = struct.Struct("!I")
_PACKED = 1 << 31  # the length's top bit: the body is compressed
_WORTH_PACKING = 16 * 1024


class WireError(Exception):
    """What came is not our protocol, or not from somebody with the token."""


def pack(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) < _WORTH_PACKING:
        return _LENGTH.pack(len(body)) + body
    body = zlib.compress(body, 1)  # a thousand addresses are mostly alike
    return _LENGTH.pack(len(body) | _PACKED) + body


class Unpacker:
    """Bytes in as they come, whole messages out."""

    def __init__(self) -> None:
        self.limit = STRANGER_LIMIT
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """One by one: the first may be the proof that raises the limit for the next."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (head,) = _LENGTH.unpack_from(self._buffer)
            length = head & ~_PACKED
            if length > self.limit:
                raise WireError(f"a frame of {length} bytes; {self.limit} are allowed")
            if len(self._buffer) < _LENGTH.size + length:
                break
            body = bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])
            del self._buffer[: _LENGTH.size + length]
            yield _message(self._unpacked(body) if head & _PACKED else body)

    def rest(self) -> bytes:
        """What was fed and is no message yet."""
        return bytes(self._buffer)

    def _unpacked(self, body: bytes) -> bytes:
        """At most `limit` bytes come out, however little went in."""
        try:
            inflate = zlib.decompressobj()
            text = inflate.decompress(body, self.limit)
        except zlib.error as error:
            raise WireError(f"not compressed text: {error}") from None
        if inflate.unconsumed_tail or not inflate.eof:
            raise WireError("a compressed frame that is too long or cut short")
        return text


def _message(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise WireError("a frame that is not JSON") from None
    if not isinstance(message, dict):
        raise WireError("a frame that is not an object")
    return message


def nonce() -> str:
    return secrets.token_hex(16)


def proof(token: str, speaker: str, theirs: str, ours: str, hello: Message | None = None) -> str:
    """`speaker` (agent or coordinator) shows the token: bound to both nonces and to what it says."""
    said = json.dumps([speaker, theirs, ours, hello], sort_keys=True)
    return hmac.new(token.encode(), said.encode(), hashlib.sha256).hexdigest()


def is_proof(given: Any, *args: Any) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode(), proof(*args).encode())
