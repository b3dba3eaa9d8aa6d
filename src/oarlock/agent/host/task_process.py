"""One task as its agent sees it: its process, how it speaks, how it ended."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from oarlock.agent.host.metrics import Metrics
from oarlock.agent.protocol.gates import Whereabouts
from oarlock.agent.protocol.outcome import MOST_SCORES, Outcome
from oarlock.agent.task_gpus.gpu_claim import GpuClaim
from oarlock.agent.task_gpus.gpu_trouble import Trouble
from oarlock.run.cluster import Task
from oarlock.run.run_events import Event
from oarlock.system import processes


class TaskChannels(Protocol):
    """One task's standard output and its line for events."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The descriptors that the task's process gets."""

    @property
    def written(self) -> int:
        """The bytes of output that have come so far."""

    @property
    def tail(self) -> bytes:
        """The end of the output that has come so far."""

    def handed_over(self) -> None:
        """The process has its ends: close them here."""

    def send(self, text: str) -> None:
        """One line to the task."""

    def last_lines(self) -> list[bytes]:
        """What the task wrote before it ended and nobody has read."""

    def say(self, text: str) -> None:
        """One line into the task's log."""

    def read_output(self) -> bool:
        """Pass on the output that has come; False at its end."""

    def close(self) -> None:
        """Pass on all output that is left."""


class TaskProcess:
    """`pid` is None until the zygote has forked it, `status` until it has ended."""

    def __init__(self, task: Task, launch: int, began: float) -> None:
        self.task = task
        self.name = task.name
        self.launch = launch
        self.began = began
        self.line: TaskChannels | None = None  # None once it is closed
        self.pid: int | None = None
        self.status: int | None = None
        self.ours = False  # the host signalled it: however it ended, that was not a failure
        self.is_asked = False  # to end, with SIGTERM
        self.error: dict[str, Any] | None = None  # the exception it reported
        self.failed_at: float | None = None
        self.starved = False  # killed for memory
        self.claim = GpuClaim(given=())
        self.opened: tuple[int, ...] = ()  # GPUs that its next process will open again
        self.gpu_env: Mapping[str, str] = {}  # variables that decide which those are
        self.is_followed = False  # its next process opens them already
        self.trouble: Trouble | None = None  # with its GPU
        self.metrics = Metrics()
        self.reported_at = float("-inf")  # when the leading agent last got a report of it
        self.gate: Whereabouts | None = None  # once it has announced one
        self.made: set[str] = set()  # folders, for all tasks
        self.awaits: set[str] = set()  # folders that the leader task makes
        self.is_halting = False  # it knows the step at which it is to leave
        self.follows = False  # it waits for checkpoints, to score them
        self.scores: deque[Event] = deque(maxlen=MOST_SCORES)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended. It may still wait for its fork."""
        return self.status is None

    @property
    def code(self) -> int:
        """The exit code as a shell has it. Only for a task that has ended."""
        assert self.status is not None
        return processes.exit_code(self.status)

    @property
    def signal(self) -> int | None:
        """The signal that killed it, if one did. Only for a task that has ended."""
        assert self.status is not None
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    def outcome(self) -> Outcome:
        """The part of the host's status that is about this task."""
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
            trouble=self.trouble.kind if self.trouble else None,
            advice=self.trouble.text if self.trouble else None,
            follows=self.follows,
            scores=tuple(self.scores),
        )

    def send(self, text: str) -> None:
        """Write one line to the task, unless its pipes are closed."""
        if self.line is not None:
            self.line.send(text)

    def close(self) -> None:
        """Close its pipes, after the rest of its output. A second call does nothing."""
        line, self.line = self.line, None
        if line is not None:
            line.close()
