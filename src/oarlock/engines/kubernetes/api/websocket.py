"""A websocket to the API server that is read and written in one thread, whenever there is something.

wsproto speaks it, on the connection that httpx has upgraded. httpx2's own session (2.16) needs threads and
leaves one behind, which keeps reading from whichever connection gets the same descriptor next: one of 30
requests then failed with WRONG_VERSION_NUMBER. And a side that only writes can wait forever: the other side
may do the same.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpcore2
import httpx2 as httpx
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping
from wsproto.utilities import ProtocolError

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.login import LoginError

PIECE = 1 << 15  # bytes in a message that we send
_READ = 1 << 16
_MOMENT = 0.001  # seconds
_TURN = 5.0  # seconds
_SILENCE = 20.0  # seconds of silence before a ping; after twice that the connection is lost
_CUT = (httpx.HTTPError, httpcore2.NetworkError, httpcore2.TimeoutException, ProtocolError, OSError)


@contextmanager
def connected(
    api: Api, path: str, params: Mapping[str, Any], protocols: Sequence[str], doing: str
) -> Iterator[Line]:
    """Open a websocket. Raises ApiError if the server refuses."""
    try:
        with api.http.stream("GET", path, params=dict(params), headers=_upgrade(protocols)) as answer:
            if answer.status_code != 101:
                answer.read()
                # The server closes it now, unannounced: one of 200 next requests on it was not answered.
                answer.extensions["network_stream"].close()
                raise _refusal(answer, doing)
            protocol = answer.headers.get("Sec-WebSocket-Protocol", "")
            yield Line(answer.extensions["network_stream"], protocol, doing)
    except (httpx.HTTPError, httpcore2.NetworkError, httpcore2.TimeoutException) as problem:
        raise cut(problem, doing) from None
    except LoginError as problem:
        raise ApiError(401, "Unauthorized", str(problem), doing) from None


class Line:
    """A connection for `select`: read it when it is readable or `is_ahead`, flush it when `is_full`."""

    def __init__(self, stream: Any, protocol: str, doing: str) -> None:
        self.protocol = protocol
        self.is_ahead = True  # something may have come with the answer to the upgrade
        self._stream = stream
        self._socket = stream.get_extra_info("socket")
        self._connection = Connection(ConnectionType.CLIENT)
        self._doing = doing
        self._out = bytearray()
        self._message = bytearray()
        self._heard = self._asked = time.monotonic()
        self._has_ended = False

    def fileno(self) -> int:
        """The descriptor, for `select`."""
        return int(self._socket.fileno())

    @property
    def is_full(self) -> bool:
        """Whether data waits to be sent, so that the caller should not add more."""
        return bool(self._out)

    def send(self, data: bytes) -> None:
        """Send what the connection takes of a message at once; `flush` sends the rest."""
        self._out += self._connection.send(BytesMessage(data))
        self.flush()

    def flush(self) -> None:
        """Send as much as the connection takes."""
        try:
            self._socket.settimeout(0)
            while self._out:
                del self._out[: self._socket.send(memoryview(self._out))]
        except OSError as problem:
            if not _is_too_early(problem):
                raise cut(problem, self._doing) from None

    def messages(self) -> Iterator[bytes]:
        """Yield messages as they arrive, until the other side closes; for a caller that only reads."""
        while (found := self.receive(_TURN)) is not None:
            if self.is_full:
                self.flush()
            self.keep_alive()
            yield from found

    def receive(self, patience: float = _MOMENT) -> list[bytes] | None:
        """The whole messages that have arrived; None when the other side has closed."""
        if self._has_ended:
            return None
        try:
            data = self._stream.read(_READ, timeout=patience)
        except httpcore2.ReadTimeout:
            self.is_ahead = False
            return []
        except _CUT as problem:
            raise cut(problem, self._doing) from None
        pending = getattr(self._socket, "pending", int)  # decrypted already: `select` does not see it
        self.is_ahead = pending() > 0
        self._heard = time.monotonic()
        return self._take(data) if data else None

    def keep_alive(self) -> None:
        """Send a ping if needed; call it every few seconds. Raises ApiError if the connection is lost."""
        now = time.monotonic()
        if self._asked > self._heard and now - self._asked > _SILENCE:
            raise cut(TimeoutError("no sign of life"), self._doing)
        if now - max(self._heard, self._asked) > _SILENCE:
            self._asked = now
            self._out += self._connection.send(Ping())
            self.flush()

    def _take(self, data: bytes) -> list[bytes] | None:
        found: list[bytes] = []
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                if isinstance(event, Ping):
                    self._out += self._connection.send(event.response())
                    self.flush()
                elif isinstance(event, CloseConnection):
                    self._has_ended = self.is_ahead = True
                    return found or None
                elif isinstance(event, BytesMessage):
                    self._message += event.data
                    if event.message_finished:
                        found += [bytes(self._message)] if self._message else []
                        self._message.clear()
        except ProtocolError as problem:
            raise cut(problem, self._doing) from None
        return found


def cut(problem: Exception, doing: str) -> ApiError:
    """The error for a connection that ended too early; `doing` is what the user wanted."""
    why = str(problem) or type(problem).__name__
    return ApiError(0, "Unreachable", f"the connection to the pod was cut ({why})", doing)


def _upgrade(protocols: Sequence[str]) -> dict[str, str]:
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
        "Sec-WebSocket-Protocol": ", ".join(protocols),
    }


def _refusal(answer: httpx.Response, doing: str) -> ApiError:
    try:
        status = answer.json()
        message, reason = str(status["message"]), str(status.get("reason", ""))
    except (ValueError, KeyError, TypeError):
        message, reason = answer.text[:200] or f"HTTP {answer.status_code}", ""
    return ApiError(answer.status_code, reason, message, doing)


def _is_too_early(problem: OSError) -> bool:
    import ssl

    return isinstance(problem, (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError))
