"""A client's connection: uvicorn's, plus protection against slow, greedy and vanished clients.

A request must be complete within a time that grows with what has arrived. Headers have a limit. An answer
that the client does not read is dropped. When connections run out, slow requests make room first, then idle
connections. One sweep a second checks all, so requests need no timer. A client that leaves cancels its work.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oarlock.serving.dialects.exchange import Refused
from oarlock.serving.http.routes import SERVER
from oarlock.serving.settings import Settings

SWEEP = 1.0  # seconds between two sweeps over all connections
PATIENCE = 20.0  # seconds for a request to arrive, or an answer to be read
SLOW = 2.0  # seconds: a request that takes longer to arrive makes room for others first
SLOWEST = 16 << 10  # bytes a second that extend this time
LARGEST_HEADERS = 64 << 10
MOST_CONNECTIONS = 4096
_numbers = itertools.count()  # not a clock: a loop's clock stands still while it accepts several connections
_SPARE_FILES = 64  # descriptors that a replica needs for other things


def connections(settings: Settings) -> type[ClientConnection]:
    """Return the value for `uvicorn.Config(http=...)`."""
    return type("ClientConnection", (ClientConnection,), {"body_limit": settings.body_limit})


class ClientConnection(HttpToolsProtocol):
    """uvicorn creates one per connection."""

    body_limit = 32 << 20  # bytes
    task: asyncio.Task[Any] | None = None  # the one that answers the current request
    _asked_since: float | None = None  # when waiting for the rest of a request began
    _idle_since = 0.0  # when the last answer was complete
    _stuck_since: float | None = None  # when the client stopped reading
    _number = 0
    _is_in_headers = True
    _arrived = 0  # bytes of this request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Handle a new client."""
        super().connection_made(transport)
        self._asked_since = self.loop.time()
        self._number = next(_numbers)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            # Otherwise the body of an answer waits for the client's ACK of its headers: 40 ms.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > most_connections():
            self._make_room()
        if "oarlock.sweep" not in self.app_state:
            self.app_state["oarlock.sweep"] = self.loop.call_later(SWEEP, _sweep, self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the answer: the client is gone, or the connection was closed here."""
        super().connection_lost(exc)
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        """Count the bytes before parsing."""
        self._arrived += len(data)
        if self._is_in_headers and self._arrived > LARGEST_HEADERS + len(data):
            self._refuse(431, f"the headers are larger than {LARGEST_HEADERS} bytes")
        elif self._arrived > self._most_bytes():
            self.transport.abort()
        elif not self.transport.is_closing():
            super().data_received(data)

    def on_message_begin(self) -> None:
        """Handle the start of a request."""
        super().on_message_begin()
        self._asked_since = self.loop.time()
        self._is_in_headers = True
        self._arrived = 0
        self.scope["oarlock.connection"] = self  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        """Handle the end of its headers."""
        self._is_in_headers = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Handle the end of the request."""
        self._asked_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Handle the end of the answer."""
        self._idle_since = self.loop.time()
        if self._asked_since is not None:  # part of the next request is here, and was not read yet
            self._asked_since = self._idle_since
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._stuck_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer non-HTTP input with a sentence, too."""
        self._refuse(400, "this is not an HTTP request that this server can read")

    def look(self, now: float) -> None:
        """End the connection if the client's time is up."""
        if self.transport.is_closing():
            self._stuck_since = self._stuck_since or now  # what is written has to leave within the same time
        if self._stuck_since is not None and now - self._stuck_since > PATIENCE:
            self.transport.abort()
        elif self._asked_since is None or self.pipeline:  # or this request waits for the one before it
            return
        elif now - self._asked_since > PATIENCE + self._arrived / SLOWEST:
            self._refuse(408, "the request did not arrive in time")

    def dispensable(self, now: float) -> tuple[int, float] | None:
        """How soon it makes room for another, lowest first; None while the server works for it."""
        if self._asked_since is not None:
            return (0 if now - self._asked_since > SLOW else 2), self._asked_since
        is_idle = self.cycle is None or self.cycle.response_complete
        return (1, self._idle_since) if is_idle else None

    def _make_room(self) -> None:
        now = self.loop.time()
        others = [one for one in self.connections if isinstance(one, ClientConnection) and one is not self]
        others = [one for one in others if not one.transport.is_closing()]
        ranked = [(rank, one._number, one) for one in others if (rank := one.dispensable(now)) is not None]
        if len(others) < most_connections():
            return
        if ranked:
            min(ranked)[2].transport.abort()
        else:
            self._refuse(503, "this server has no room for another connection; try again")

    def _most_bytes(self) -> int:
        """Chunks of a few bytes have more framing than content; no honest client sends twice the limit."""
        return 2 * self.body_limit + 2 * LARGEST_HEADERS + (1 << 20)

    def _refuse(self, status: int, text: str) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = SERVER.refusal(Refused(status, text)).body
            head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
            head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
        self.transport.close()


_REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


def most_connections() -> int:
    """The maximum number of connections, below the number of files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(MOST_CONNECTIONS, soft - _SPARE_FILES) if soft > 0 else MOST_CONNECTIONS)


def _sweep(connection: ClientConnection) -> None:
    """Check all connections, and repeat while there are any."""
    now = connection.loop.time()
    for one in list(connection.connections):
        if isinstance(one, ClientConnection):
            one.look(now)
    if connection.connections:
        connection.app_state["oarlock.sweep"] = connection.loop.call_later(SWEEP, _sweep, connection)
    else:
        del connection.app_state["oarlock.sweep"]
