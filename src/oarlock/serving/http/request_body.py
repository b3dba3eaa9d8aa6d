"""Reads a request's body, never more of it than the limits allow."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from oarlock.serving.dialects.exchange import Refused

Receive = Callable[[], Awaitable[Any]]
_FRAMES = {b"gzip": 31, b"deflate": 47}  # zlib's window bits; 47: with a zlib or gzip header
_WAITING_BODIES = 8  # full-size bodies that may be half received at a time
_RETRY = [(b"retry-after", b"1")]


class ClientGone(Exception):
    """The connection ended before the request did."""


class BodyReader:
    """Reads bodies for one process, and limits the total size of half-received ones."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0  # bytes of incomplete bodies

    async def read(self, receive: Receive, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the whole body. Raises Refused with 413, 415 or 429, and ClientGone."""
        declared = headers.get(b"content-length")
        if declared is not None and int(declared) > self.limit:
            raise self._too_large()
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        body: bytes = message["body"]
        if message["more_body"]:
            body = await self._rest(receive, body)
        if len(body) > self.limit:
            raise self._too_large()
        encoding = headers.get(b"content-encoding")
        return body if encoding is None else self._inflated(body, encoding.strip().lower())

    async def _rest(self, receive: Receive, first: bytes) -> bytes:
        parts, size, more = [first], len(first), True
        self._held += size
        try:
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                parts.append(message["body"])
                more = message["more_body"]
                size += len(parts[-1])
                self._held += len(parts[-1])
                if size > self.limit:
                    raise self._too_large()
                if self._held > _WAITING_BODIES * self.limit:
                    raise Refused(429, "too many large requests arrive at once; try again in 1 s", _RETRY)
        finally:
            self._held -= size
        return b"".join(parts)

    def _inflated(self, body: bytes, encoding: bytes) -> bytes:
        if encoding in (b"", b"identity"):
            return body
        if encoding not in _FRAMES:
            raise Refused(415, "the content-encoding is not known; send gzip, deflate or plain bytes")
        inflater = zlib.decompressobj(_FRAMES[encoding])
        try:
            plain = inflater.decompress(body, self.limit + 1)
        except zlib.error:
            raise Refused(400, f"the body is not {encoding.decode()}, unlike its content-encoding") from None
        if len(plain) > self.limit:
            raise self._too_large()
        if not inflater.eof:
            raise Refused(400, f"the body ends in the middle of its {encoding.decode()}")
        return plain

    def _too_large(self) -> Refused:
        return Refused(413, f"the body is larger than {self.limit} bytes, the limit of this server")
