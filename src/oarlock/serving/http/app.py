"""The ASGI application of a replica: from a request to its answer, no matter what happens in between.

The path of a prediction is kept short, because routing and validation cost more than a small model does. A
client's mistake is a 4xx with a sentence; a traceback goes to the log, never to a client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from oarlock.serving.dialects.exchange import Answer, Call, Dialect, Refused
from oarlock.serving.http import routes
from oarlock.serving.http.access_log import AccessLog
from oarlock.serving.http.request_body import BodyReader, ClientGone, Receive
from oarlock.serving.http.token_check import TokenCheck
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.serving.served import Models, Overloaded

Send = Callable[[Any], Awaitable[None]]
_log = logging.getLogger("oarlock.serving")
_TIMEOUTS = (TimeoutError, asyncio.TimeoutError)  # one class since Python 3.11
_CLIENT_GONE = 499  # in metrics and the log: no client is left to read it


def application(models: Models) -> Application:
    """Return the ASGI callable that answers for these models."""
    return Application(models)


class Application:
    """Everything that requests share."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self.bodies = BodyReader(models.settings.body_limit)
        self._token = TokenCheck(models.settings.token_file)
        self._routes = routes.table(models.name)
        self._access_log = AccessLog() if models.settings.access_log else None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        begin = time.perf_counter()
        connection = scope.get("oarlock.connection")
        if connection is not None:
            connection.task = asyncio.current_task()
        exchange = _Exchange(scope)
        try:
            answer = await self._answer(exchange, receive)
            status, size = answer.status, len(answer.body)
            exchange.is_sent = True
            await _send(send, answer)
        except (ClientGone, asyncio.CancelledError):
            status, size = _CLIENT_GONE, 0
            if not exchange.is_sent:
                await _send(send, _stopping(exchange.dialect))  # lost if the client is gone
        except Exception:  # while sending parts: the connection ends early, which the client notices
            _log.exception("%s %s", scope["method"], scope["path"])
        finally:
            if connection is not None:
                connection.task = None
        seconds = time.perf_counter() - begin
        counters = self.models.counters
        counters.add("requests_total", 1, dialect=exchange.dialect.name, code=status)
        counters.observe("request_seconds", seconds)
        if self._access_log is not None:
            self._access_log.note(scope, exchange.call, exchange.dialect.name, status, seconds, size)

    def close(self) -> None:
        """Write what the access log still holds."""
        if self._access_log is not None:
            self._access_log.flush()

    async def _answer(self, exchange: _Exchange, receive: Receive) -> Answer:
        try:
            return await self._handled(exchange, receive)
        except Refused as refused:
            return exchange.dialect.refusal(refused)
        except Overloaded as overloaded:
            # Whole seconds, and never 0: a client that retries at once makes it worse.
            wait = [(b"retry-after", str(max(1, round(overloaded.retry_after + 0.5))).encode())]
            return exchange.dialect.refusal(Refused(429, str(overloaded), wait))
        except ModelError as problem:
            return exchange.dialect.refusal(Refused(400, f"the model refuses this: {problem}"))
        except _TIMEOUTS:
            return exchange.dialect.refusal(Refused(504, "the model did not answer within the deadline"))
        except ClientGone:
            raise
        except Exception:
            _log.exception("%s %s", exchange.scope["method"], exchange.scope["path"])
            said = "something is wrong in this server or its model; its log says what"
            return exchange.dialect.refusal(Refused(500, said))

    async def _handled(self, exchange: _Exchange, receive: Receive) -> Answer:
        scope = exchange.scope
        headers = dict(scope["headers"])
        path, method = scope["path"], scope["method"]
        exchange.dialect = routes.dialect_of(path)
        route, number = routes.find(self._routes, path, self.models.name)
        exchange.dialect = route.dialect
        if self._token.is_needed and not route.is_open:
            self._token.check(headers)
        handler = route.handlers.get("GET" if method == "HEAD" else method)
        if handler is None:
            allowed = ", ".join(sorted(route.handlers))
            raise Refused(405, f"{path} takes {allowed}, not {method}", [(b"allow", allowed.encode())])
        body = await self.bodies.read(receive, headers)
        exchange.call = call = Call(self.models, headers, body, number)
        try:
            return await handler(call)
        except KeyError as unknown:
            if call.served is not None or not unknown.args:
                raise
            raise Refused(404, str(unknown.args[0])) from None


class _Exchange:
    """What is known about a request so far, for its error and the log."""

    __slots__ = ("call", "dialect", "is_sent", "scope")

    def __init__(self, scope: Any) -> None:
        self.scope = scope
        self.dialect: Dialect = routes.SERVER
        self.call: Call | None = None
        self.is_sent = False


async def _send(send: Send, answer: Answer) -> None:
    headers = [(b"content-type", answer.content_type), *answer.headers]
    if answer.parts is None:
        headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        return
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if answer.body:
            await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        async for part in answer.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    finally:
        close = getattr(answer.parts, "aclose", None)  # generators have it: it frees what they hold at once
        if close is not None:
            await close()
    await send({"type": "http.response.body", "body": b""})


def _stopping(dialect: Dialect) -> Answer:
    return dialect.refusal(Refused(503, "this server is stopping; try again", [(b"connection", b"close")]))
