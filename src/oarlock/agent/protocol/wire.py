"""What travels between agents and coordinator: frames, each with a seal that proves who sent it.

A frame is four bytes of length, a JSON object and a seal: an HMAC over a counter, the length and the bytes
of the object. A seal is checked before anything is parsed. The token never travels:

    coordinator   {"version": 2, "challenge": ...}              without a seal
    agent         {"version": 2, "nonce": ..., "hello": ...}    key: from the token and the challenge
    coordinator   {"welcome": 1}                                from here on, each direction has its own key:
                                                                from the token, the challenge and the nonce

So a frame that is replayed, reflected, changed, dropped or inserted is noticed. Frames are not encrypted. Up
to the greeting a frame may have 4 KiB, after it 16 MiB. A frame that breaks these rules raises WireError.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

Message = dict[str, Any]

VERSION = 2  # version 1 had a proof in the greeting, and no seals after it
STRANGER_LIMIT = 4 * 1024
MEMBER_LIMIT = 16 * 1024 * 1024
SEAL = 16  # bytes
LENGTH = struct.Struct("!I")
_COUNT = struct.Struct("!Q")
_PACKED = 1 << 31  # the top bit of the length: the body is compressed
_WORTH_PACKING = 16 * 1024
_DIGITS = 300  # in one number: as many as the largest float has


class WireError(Exception):
    """The other side does not follow the protocol, or does not hold the token. The text names a kind of
    mistake and repeats nothing that the other side sent."""


class OtherVersionError(WireError):
    """The other side speaks another version of the protocol."""

    def __init__(self, theirs: int) -> None:
        super().__init__(
            f"it speaks version {theirs} of the agents' protocol, this one {VERSION}: "
            "start all agents of a run with the same version of Oarlock"
        )


class Session(NamedTuple):
    """The keys of one connection, after its greeting."""

    agent: bytes
    coordinator: bytes


class Seal:
    """One direction of a connection. The seal of a frame depends on its position in the sequence."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")  # a copy takes half the time of a new one
        self._count = 0

    def of(self, *parts: bytes | memoryview) -> bytes:
        """Seal the next frame, given in parts. Every call counts as one frame."""
        mac = self._keyed.copy()
        mac.update(_COUNT.pack(self._count))
        self._count += 1
        for part in parts:
            mac.update(part)
        return mac.digest()[:SEAL]

    def fits(self, given: bytes, *parts: bytes | memoryview) -> bool:
        """Whether this is the seal of the next frame. This counts as one frame, too."""
        return hmac.compare_digest(given, self.of(*parts))


def pack(message: Message) -> bytes:
    """Make a frame without its seal, so that many connections can share it."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) < _WORTH_PACKING:
        return LENGTH.pack(len(body)) + body
    body = zlib.compress(body, 1)  # a thousand addresses are much alike
    return LENGTH.pack(len(body) | _PACKED) + body


def sealed(frame: bytes, seal: Seal) -> bytes:
    """Append the seal. Frames must be sent in the order in which they were sealed."""
    return frame + seal.of(frame)


class Unpacker:
    """Takes bytes as they arrive and yields whole messages."""

    def __init__(self) -> None:
        self.limit = STRANGER_LIMIT
        self.seal: Seal | None = None  # for the next frame; None: that has no seal
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield one message at a time: after a greeting, the caller sets the seal for the next frame."""
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            (head,) = LENGTH.unpack_from(self._buffer)
            length = head & ~_PACKED
            if length > self.limit:
                raise WireError("a frame that is too long")
            end = LENGTH.size + length
            whole = end + (SEAL if self.seal is not None else 0)
            if len(self._buffer) < whole:
                self._suspect()
                break
            frame, given = bytes(self._buffer[:end]), bytes(self._buffer[end:whole])
            if self.seal is not None and not self.seal.fits(given, frame):
                self._suspect()
                raise WireError("a frame without this run's seal")
            del self._buffer[:whole]
            body = frame[LENGTH.size :]
            yield _message(self._unpacked(body) if head & _PACKED else body)

    def rest(self) -> bytes:
        """The bytes that do not form a whole message yet."""
        return bytes(self._buffer)

    def _suspect(self) -> None:
        """Raise OtherVersionError if this looks like another version's greeting. Its seal may differ or be
        missing: only its beginning is the same in all versions."""
        greeting = _GREETING.match(self._buffer, LENGTH.size)
        version = int(greeting[1] or 1) if greeting is not None and self.limit == STRANGER_LIMIT else VERSION
        if version != VERSION:
            raise OtherVersionError(version)

    def _unpacked(self, body: bytes) -> bytes:
        """Decompress to at most `limit` bytes, whatever the input."""
        try:
            inflate = zlib.decompressobj()
            text = inflate.decompress(body, self.limit)
        except zlib.error:
            raise WireError("a frame that is not compressed text") from None
        if inflate.unconsumed_tail or not inflate.eof:
            raise WireError("a compressed frame that is too long or cut short")
        return text


_GREETING = re.compile(rb'\{(?:"version":(\d{1,9}),|"hello":)')


def parse(text: bytes) -> Any:
    """Parse JSON from outside. Raises WireError."""
    try:
        return _DECODER.decode(text.decode())
    except (ValueError, RecursionError):
        raise WireError("text that is not JSON") from None


def _message(body: bytes) -> Message:
    message = parse(body)
    if not isinstance(message, dict):
        raise WireError("a frame that is not an object")
    return message


def _whole(digits: str) -> int:
    """Refuse numbers that nothing here needs: Python would parse ten thousand digits, slowly."""
    if len(digits) > _DIGITS:
        raise ValueError("a number with too many digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_whole)


def nonce() -> str:
    """Draw 16 random bytes, in hexadecimal, for one greeting."""
    return secrets.token_hex(16)


def greeting(hello: Message, nonce: str) -> Message:
    """Make the first frame of an agent or a client. The version comes first: `_GREETING` reads it there."""
    return {"version": VERSION, "nonce": nonce, "hello": hello}


def greeting_key(token: str, challenge: str) -> bytes:
    """Derive the key that seals the greeting of an agent or a client."""
    return _key(token, "greeting", challenge)


def session(token: str, challenge: str, nonce: str) -> Session:
    """Derive the keys for what follows the greeting, which carried this `nonce`."""
    return Session(_key(token, "agent", challenge, nonce), _key(token, "coordinator", challenge, nonce))


def _key(token: str, *words: str) -> bytes:
    return hmac.new(token.encode(), "\0".join(("oarlock", *words)).encode(), "sha256").digest()
