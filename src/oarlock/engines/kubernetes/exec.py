"""Running a command in a pod, over the API server's websocket.

The server speaks v5.channel.k8s.io: the first byte of a message is its channel, the rest is data, and
the last message of all, on the error channel, is how the command ended. A connection that ends without it
was cut. Bytes arrive as they are, about 100 MB/s (two shared cores).

The websocket is wsproto's, read by whoever asks. httpx2's own session (2.16, lightkube's exec too) reads in a
thread that it leaves behind when it closes the socket, and that thread goes on reading from whichever
connection gets the same descriptor next: one of 30 requests then failed with WRONG_VERSION_NUMBER.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator, Sequence
from typing import IO, Any

import httpcore2
import httpx2 as httpx
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping
from wsproto.utilities import ProtocolError

from oarlock.engines.kubernetes.api import Api, ApiError
from oarlock.engines.kubernetes.pods import CONTAINER

_PROTOCOLS = "v5.channel.k8s.io, v4.channel.k8s.io"
_STDOUT, _STDERR, _ERROR = 1, 2, 3
_MOST_STDERR = 1 << 20
_PIECE = 1 << 16
_SILENCE = (
    20.0  # seconds after which the server is asked for a sign of life, and after which it had its chance
)
_CUT = (httpx.HTTPError, httpcore2.NetworkError, httpcore2.TimeoutException, ProtocolError, OSError)


def run(
    api: Api, pod: str, command: Sequence[str], stdout: IO[bytes] | None = None
) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr; with a file given, stdout goes there. Raises ApiError."""
    running = Command(api, pod, command)
    kept: list[bytes] = []
    for piece in running.output():
        if stdout is None:
            kept.append(piece)
        else:
            stdout.write(piece)
    return running.code, b"".join(kept), bytes(running.stderr)


class Command:
    """One that runs in a pod: read its output to the end, then its `code` is known."""

    def __init__(self, api: Api, pod: str, words: Sequence[str]) -> None:
        self._api = api
        self._path = f"api/v1/namespaces/{api.namespace}/pods/{pod}/exec"
        self._words = list(words)
        self.doing = f"exec in {pod}"
        self.code = -1
        self.stderr = bytearray()

    def output(self) -> Iterator[bytes]:
        """What it writes to stdout, as it comes. Who stops reading leaves it without a reader."""
        params: dict[str, Any] = {
            "command": self._words,
            "container": CONTAINER,
            "stdout": "true",
            "stderr": "true",
        }
        try:
            with self._api.http.stream("GET", self._path, params=params, headers=_upgrade()) as answer:
                if answer.status_code != 101:
                    answer.read()
                    raise _refusal(answer, self.doing)
                yield from self._output(_messages(answer.extensions["network_stream"]))
        except _CUT as problem:
            told = str(problem) or type(problem).__name__
            raise ApiError(
                0, "Unreachable", f"the connection to the pod was cut ({told})", self.doing
            ) from None

    def _output(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        for message in messages:
            channel, data = message[0], message[1:]
            if channel == _STDOUT and data:
                yield data
            elif channel == _STDERR:
                self.stderr += data[: _MOST_STDERR - len(self.stderr)]
            elif channel == _ERROR:
                self.code = _exit_code(data, self.doing)
                return
        raise OSError("it ended without a word")


def _upgrade() -> dict[str, str]:
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
        "Sec-WebSocket-Protocol": _PROTOCOLS,
    }


def _messages(stream: httpcore2.NetworkStream) -> Iterator[bytes]:
    """Whole messages, until the other side closes."""
    connection = Connection(ConnectionType.CLIENT)
    message = bytearray()
    is_asked = False
    while True:
        try:
            data = stream.read(_PIECE, timeout=_SILENCE)
        except httpcore2.ReadTimeout:
            if is_asked:
                raise
            stream.write(connection.send(Ping()), timeout=_SILENCE)
            is_asked = True
            continue
        if not data:
            return
        is_asked = False
        connection.receive_data(data)
        for event in connection.events():
            if isinstance(event, Ping):
                stream.write(connection.send(event.response()), timeout=_SILENCE)
            elif isinstance(event, CloseConnection):
                return
            elif isinstance(event, BytesMessage):
                message += event.data
                if event.message_finished:
                    if message:
                        yield bytes(message)
                    message.clear()


def _refusal(answer: httpx.Response, doing: str) -> ApiError:
    try:
        told = answer.json()
        message, reason = str(told["message"]), str(told.get("reason", ""))
    except (ValueError, KeyError, TypeError):
        message, reason = answer.text[:200] or f"HTTP {answer.status_code}", ""
    return ApiError(answer.status_code, reason, message, doing)


def _exit_code(told: bytes, doing: str) -> int:
    status = json.loads(told)
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    message = str(status.get("message", "")).rpartition("exec failed: ")[2]
    raise ApiError(int(status.get("code") or 500), str(status.get("reason", "")), message, doing)
