"""Run a command in a pod, over the API server's websocket.

The server speaks v5.channel.k8s.io: the first byte of a message is its channel, the rest is data, and
the last message of all, on the error channel, is how the command ended. A connection that ends without it
was cut. Bytes arrive as they are, about 100 MB/s (two shared cores).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from typing import IO, Any

from oarlock.engines.kubernetes.api import websocket
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import CONTAINER

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDOUT, _STDERR, _ERROR = 1, 2, 3
_MOST_STDERR = 1 << 20


def run(
    api: Api, pod: str, command: Sequence[str], stdout: IO[bytes] | None = None
) -> tuple[int, bytes, bytes]:
    """Run a command: exit code, stdout and stderr; a file gets stdout. Raises ApiError."""
    running = Command(api, pod, command)
    kept: list[bytes] = []
    for piece in running.output():
        if stdout is None:
            kept.append(piece)
        else:
            stdout.write(piece)
    return running.code, b"".join(kept), bytes(running.stderr)


class Command:
    """A command in a pod: read its output to the end, then it has a `code`."""

    def __init__(self, api: Api, pod: str, words: Sequence[str], stderr: IO[bytes] | None = None) -> None:
        """`stderr`: a file that gets what the command writes to stderr, as it arrives; else that is kept."""
        self._api = api
        self._file = stderr
        self._path = f"api/v1/namespaces/{api.namespace}/pods/{pod}/exec"
        self._words = list(words)
        self.doing = f"exec in {pod}"
        self.code = -1
        self.stderr = bytearray()

    def output(self) -> Generator[bytes]:
        """Yield what it writes to stdout, as it arrives. A caller that stops leaves it without a reader."""
        params: dict[str, Any] = {
            "command": self._words,
            "container": CONTAINER,
            "stdout": "true",
            "stderr": "true",
        }
        with websocket.connected(self._api, self._path, params, PROTOCOLS, self.doing) as line:
            yield from self._output(line.messages())

    def _output(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        for message in messages:
            channel, data = message[0], message[1:]
            if channel == _STDOUT and data:
                yield data
            elif channel == _STDERR and self._file is not None:
                self._file.write(data)
                self._file.flush()
            elif channel == _STDERR:
                self.stderr += data[: _MOST_STDERR - len(self.stderr)]
            elif channel == _ERROR:
                self.code = exit_code(data, self.doing)
                return
        raise websocket.cut(OSError("it ended without output"), self.doing)


def exit_code(message: bytes, doing: str) -> int:
    """The exit code in the last message of a command. Raises ApiError if it did not start."""
    status = json.loads(message)
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    why = str(status.get("message", "")).rpartition("exec failed: ")[2]
    raise ApiError(int(status.get("code") or 500), str(status.get("reason", "")), why, doing)
