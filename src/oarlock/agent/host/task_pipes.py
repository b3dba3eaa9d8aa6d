"""A task's output pipe and its event socket, watched by the loop. Its output goes to its log."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from oarlock.agent.net.deadlines import Action
from oarlock.agent.net.loop import Loop
from oarlock.agent.record.task_log import Log
from oarlock.system.lines import Lines

_CHUNK = 1 << 16
_LINE_LIMIT = 1 << 20  # bytes to keep of a line without an end
_READS = 16  # chunks of events per turn: a task that writes without end must not occupy the loop
_LAST_READS = 256
_OUTPUT_READS = 64
_TAIL = 1 << 16  # bytes: a crash in NCCL prints twenty thousand


class TaskPipes:
    """The `TaskChannels` of a real task."""

    def __init__(self, loop: Loop, log: Log, on_lines: Callable[[list[bytes]], None], on_end: Action) -> None:
        self._loop = loop
        self._on_lines = on_lines
        self._on_end = on_end
        self._log = log
        self._output, self._output_end = os.pipe()
        self._showing = f"show the unfinished line in {self._output}"
        self._events, self._events_end = socket.socketpair()
        os.set_blocking(self._output, False)
        self._events.setblocking(False)
        self._lines = Lines()
        self.written = 0  # bytes of output so far
        self.tail = b""  # the end of the output so far

    @property
    def ends(self) -> tuple[int, ...]:
        """The descriptors for the task's process: standard output and its event line."""
        return self._output_end, self._events_end.fileno()

    def handed_over(self) -> None:
        """Close the task's ends here, so that its exit ends both streams, and start to read."""
        os.close(self._output_end)
        self._events_end.close()
        self._loop.watch(self._output, self._on_output)
        self._loop.watch(self._events, self._on_events)

    def send(self, text: str) -> None:
        """Write one line to the task. If the task does not read, drop it."""
        try:
            self._events.send(text.encode() + b"\n")
        except OSError:
            pass  # it is gone, or does not listen: a signal follows

    def say(self, text: str) -> None:
        """Add a line of the agent's own to the task's log."""
        self._log.say(text)

    def last_lines(self) -> list[bytes]:
        """Read the events that a task left unread, within bounds."""
        return self._read_lines(_LAST_READS) if self._loop.watches(self._events) else []

    def read_output(self, most: int = _OUTPUT_READS) -> bool:
        """Pass on the output that has arrived, at most `most` chunks. Returns False at its end."""
        for _ in range(most):
            try:
                data = os.read(self._output, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.written += len(data)
            self.tail = (self.tail + data)[-_TAIL:]
            self._log.feed(data)
        return True

    def close(self) -> None:
        """Move the remaining output to the log, then close log and pipes."""
        self._loop.cancel(self._showing)
        self._loop.forget(self._output)
        self._loop.forget(self._events)
        self.read_output(most=1 << 20)
        self._log.close()
        os.close(self._output)
        self._events.close()

    def _on_output(self) -> None:
        if not self.read_output():
            self._loop.forget(self._output)
        if self._log.has_begun and not self._loop.expects(self._showing):
            self._loop.after(self._showing, self._log.pause, self._log.show)

    def _on_events(self) -> None:
        self._on_lines(self._read_lines(_READS))
        if not self._loop.watches(self._events):
            self._on_end()

    def _read_lines(self, most: int) -> list[bytes]:
        data = b""
        try:
            for _ in range(most):
                chunk = self._events.recv(_CHUNK)
                if not chunk:
                    self._loop.forget(self._events)
                    break
                data += chunk
        except BlockingIOError:
            pass
        except OSError:
            self._loop.forget(self._events)
        lines = self._lines.feed(data)
        if len(self._lines.rest) > _LINE_LIMIT:
            self._lines.take_rest()
        return [line for line in lines if line]
