"""uvicorn on an inherited socket, with a shutdown that loses no request.

A connection that is kept alive may carry the next request at any moment, so none is closed abruptly: once
shutdown begins, every answer says that it is the connection's last, and idle connections are closed after
a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from oarlock.serving.draining_signals import RETIRE, STOP
from oarlock.serving.http.app import Application
from oarlock.serving.http.client_connection import connections
from oarlock.serving.settings import Settings

_SILENT = 1.0  # seconds for idle connections when the whole server stops
_KEEP_ALIVE = 75  # seconds that an idle connection stays: longer than most load balancers keep theirs
_TURN = 0.05  # seconds between two looks
_CLOSE = (b"connection", b"close")


class DrainingServer(uvicorn.Server):
    """Serves until SIGTERM or RETIRE. `on_ready` is called once it accepts connections."""

    def __init__(
        self,
        app: Application,
        settings: Settings,
        on_ready: Callable[[], None],
        on_drain: Callable[[], None],
    ) -> None:
        config = uvicorn.Config(
            app,
            http=connections(settings),
            loop="uvloop",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # clients' mistakes go into their answers, not into the log
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
        )
        super().__init__(config)
        self._grace = settings.grace
        self._silent = _SILENT
        self._on_ready = on_ready
        self._on_drain = on_drain

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `startup`: uvicorn would raise them again at the end."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and handle the supervisor's signals."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(STOP, self._drain, _SILENT)
        loop.add_signal_handler(RETIRE, self._drain, self._grace)
        await super().startup(sockets)
        self._on_ready()

    def _drain(self, silent: float) -> None:
        self._silent = min(silent, self._silent) if self.should_exit else silent
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, answer what has arrived, and close."""
        self._on_drain()
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        state, began = self.server_state, time.monotonic()
        state.default_headers = [*state.default_headers, _CLOSE]  # for requests that arrive from now on
        for connection in list(state.connections):
            _answer_last(connection)
        while state.connections and time.monotonic() - began < self._grace:
            if time.monotonic() - began >= self._silent:
                for connection in list(state.connections):
                    connection.shutdown()  # at once if it is idle, else after its answer
            await asyncio.sleep(_TURN)
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()


def _answer_last(connection: Any) -> None:
    """Make the answer in progress say that it is the last one."""
    cycle = connection.cycle
    if cycle is not None and not cycle.response_started:
        cycle.keep_alive = False
