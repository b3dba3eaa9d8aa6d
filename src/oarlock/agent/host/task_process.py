"""One task as its agent sees it: its process, its output, its line for events, how it ended."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from oarlock.agent.host.metrics import Metrics
from oarlock.agent.protocol.gates import Whereabouts
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.record.run_record import Log
from oarlock.run.cluster import Task
from oarlock.system import processes

_CHUNK = 1 << 16
_EVENT_LIMIT = 1 << 20  # a task that sends more without a newline is not speaking our language


class Member:
    def __init__(self, task: Task, log: Log, launch: int) -> None:
        self.task = task
        self.name = task.name
        self.launch = launch
        self.began = time.time()
        self.pid: int | None = None
        self.status: int | None = None
        self.ours = False  # we signalled it: however it ended, that was not a failure
        self.error: dict[str, Any] | None = None  # the exception it reported
        self.failed_at: float | None = None
        self.starved = False  # killed for memory
        self.metrics = Metrics()
        self.told_at = float("-inf")
        self.gate: Whereabouts | None = None  # once it has announced one
        self.is_halting = False  # it was told the step at which it is to leave
        self.log = log
        self.output, self._output_end = os.pipe()
        self.line, self._line_end = socket.socketpair()
        os.set_blocking(self.output, False)
        self.line.setblocking(False)
        self._partial = b""
        self.is_closed = False

    @property
    def ends(self) -> tuple[int, int]:
        """What the task's process gets: standard output and its line to us."""
        return self._output_end, self._line_end.fileno()

    def handed_over(self) -> None:
        os.close(self._output_end)
        self._line_end.close()

    @property
    def is_alive(self) -> bool:
        return self.status is None

    @property
    def code(self) -> int:
        assert self.status is not None
        return processes.exit_code(self.status)

    @property
    def signal(self) -> int | None:
        assert self.status is not None
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    def outcome(self) -> Outcome:
        ended = self.status is not None
        return Outcome(
            name=self.name,
            launch=self.launch,
            began=self.began,
            code=self.code if ended else None,
            signal=self.signal if ended else None,
            ours=self.ours,
            error=self.error,
            failed_at=self.failed_at,
            starved=self.starved,
        )

    def read_output(self, most: int = 64) -> bool:
        """Pass on what is there, at most `most` chunks; False at its end."""
        for _ in range(most):
            try:
                data = os.read(self.output, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.log.feed(data)
        return True

    def read_lines(self, most: int) -> tuple[list[bytes], bool]:
        """(lines for events that have come, whether more may come)."""
        is_open = True
        try:
            for _ in range(most):
                data = self.line.recv(_CHUNK)
                if not data:
                    is_open = False
                    break
                self._partial += data
        except BlockingIOError:
            pass
        except OSError:
            is_open = False
        *lines, self._partial = self._partial.split(b"\n")
        self._partial = b"" if len(self._partial) > _EVENT_LIMIT else self._partial
        return [line for line in lines if line], is_open

    def ask(self, what: str) -> None:
        try:
            self.line.send(what.encode() + b"\n")
        except OSError:
            pass  # gone, or not listening: the signal that follows is for it

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.read_output(most=1 << 20)
            self.log.close()
            os.close(self.output)
            self.line.close()
