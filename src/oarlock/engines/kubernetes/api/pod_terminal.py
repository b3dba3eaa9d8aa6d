"""Run a command in a pod with this terminal or with given streams.

Input goes to the command, its output comes here, and the result is its exit code. The terminal is restored.
"""

from __future__ import annotations

import json
import os
import select
import signal
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from oarlock.engines.kubernetes.api import pod_exec, websocket
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import CONTAINER

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_TURN = 5.0  # seconds


@dataclass(frozen=True)
class Ends:
    """The streams of the command on this machine."""

    stdin: int | None  # a descriptor; None for no input
    stdout: IO[bytes]
    stderr: IO[bytes]
    is_terminal: bool = False  # then `stdin` is one, and the command has one too


def talk(api: Api, pod: str, words: Sequence[str], ends: Ends) -> int:
    """Run the command and return its exit code. Raises ApiError."""
    doing = f"exec in {pod}"
    params = {
        "command": list(words),
        "container": CONTAINER,
        "stdin": str(ends.stdin is not None).lower(),
        "stdout": "true",
        "stderr": str(not ends.is_terminal).lower(),  # a terminal has one stream for both
        "tty": str(ends.is_terminal).lower(),
    }
    path = f"api/v1/namespaces/{api.namespace}/pods/{pod}/exec"
    with websocket.connected(api, path, params, pod_exec.PROTOCOLS, doing) as line, _resized(ends) as resized:
        return _Talk(line, ends, resized, doing).to_its_end()


class _Talk:
    def __init__(self, line: websocket.Line, ends: Ends, resized: int | None, doing: str) -> None:
        self.line = line
        self.ends = ends
        self.doing = doing
        self.stdin = ends.stdin
        self.resized = resized
        self.code: int | None = None

    def to_its_end(self) -> int:
        if self.resized is not None:
            self._tell_size()
        while self.code is None:
            self._turn()
        return self.code

    def _turn(self) -> None:
        typed = [] if self.stdin is None or self.line.is_full else [self.stdin]
        resized = [] if self.resized is None else [self.resized]
        reading: list[Any] = [self.line, *typed, *resized]
        waiting = [self.line] if self.line.is_full else []
        readable, writable, _ = select.select(reading, waiting, [], 0 if self.line.is_ahead else _TURN)
        if writable:
            self.line.flush()
        if self.resized in readable and self.resized is not None:
            os.read(self.resized, 4096)
            self._tell_size()
        if typed and typed[0] in readable:
            self._type(typed[0])
        if self.line in readable or self.line.is_ahead:
            self._hear()
        self.line.keep_alive()

    def _hear(self) -> None:
        messages = self.line.receive()
        if messages is None:
            raise ApiError(0, "Unreachable", "the connection to the pod was cut", self.doing)
        for message in messages:
            channel, data = message[0], message[1:]
            if channel == _ERROR:
                self.code = pod_exec.exit_code(data, self.doing)
            elif channel in (_STDOUT, _STDERR) and data:
                end = self.ends.stdout if channel == _STDOUT else self.ends.stderr
                end.write(data)
                end.flush()

    def _type(self, stdin: int) -> None:
        data = os.read(stdin, websocket.PIECE)
        if data:
            self.line.send(bytes([_STDIN]) + data)
            return
        self.stdin = None
        if self.line.protocol == pod_exec.PROTOCOLS[0]:  # the older one has no end of input
            self.line.send(bytes([_CLOSE, _STDIN]))

    def _tell_size(self) -> None:
        try:
            size = os.get_terminal_size(self.ends.stdin or 0)
        except OSError:
            return
        message = json.dumps({"Width": size.columns, "Height": size.lines})
        self.line.send(bytes([_RESIZE]) + message.encode())


@contextmanager
def _resized(ends: Ends) -> Iterator[int | None]:
    """Put the terminal into raw mode; yields a descriptor that is readable when its size has changed."""
    if not ends.is_terminal or ends.stdin is None:
        yield None
        return
    before = termios.tcgetattr(ends.stdin)
    read, write = os.pipe()
    os.set_blocking(write, False)
    handler = signal.signal(signal.SIGWINCH, lambda *_: _wake(write))
    try:
        tty.setraw(ends.stdin, termios.TCSADRAIN)  # keeps what was typed ahead
        yield read
    finally:
        termios.tcsetattr(ends.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
        os.close(read)
        os.close(write)


def _wake(write: int) -> None:
    try:
        os.write(write, b".")
    except BlockingIOError:
        pass  # the pipe is full: the reader is awake
