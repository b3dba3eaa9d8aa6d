"""One task as its agent sees it: its process, its channels, and how it ended."""

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
    """One task's standard output and its event line."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The descriptors for the task's process."""

    @property
    def written(self) -> int:
        """The bytes of output so far."""

    @property
    def tail(self) -> bytes:
        """The end of the output so far."""

    def handed_over(self) -> None:
        """Close the task's ends here: its process has them now."""

    def send(self, text: str) -> None:
        """Send one line to the task."""

    def last_lines(self) -> list[bytes]:
        """The lines that the task wrote before it ended and that are still unread."""

    def say(self, text: str) -> None:
        """Add one line to the task's log."""

    def read_output(self) -> bool:
        """Pass on the output that has arrived. Returns False at its end."""

    def close(self) -> None:
        """Pass on all remaining output."""


class TaskProcess:
    """One task. `pid` is None until the zygote has forked it, and `status` until it has ended."""

    def __init__(self, task: Task, launch: int, began: float) -> None:
        self.task = task
        self.name = task.name
        self.launch = launch
        self.began = began
        self.line: TaskChannels | None = None  # None after it is closed
        self.pid: int | None = None
        self.status: int | None = None
        self.ours = False  # the host signaled it: its end is no failure, however it ended
        self.is_asked = False  # SIGTERM was sent
        self.error: dict[str, Any] | None = None  # the exception it reported
        self.failed_at: float | None = None
        self.starved = False  # killed for lack of memory
        self.claim = GpuClaim(given=())
        self.program = ""  # what it runs
        self.opened: tuple[int, ...] = ()  # the GPUs that its next process will open again
        self.used: tuple[int, ...] = ()  # the GPUs that a task of the next run will open, too
        self.room = 0  # bytes that were free on these when it was last known
        self.gpu_env: Mapping[str, str] = {}  # the variables that decide which GPUs these are
        self.is_followed = False  # its next process has opened them, or is doing so
        self.trouble: Trouble | None = None  # GPU trouble that explains its failure
        self.metrics = Metrics()
        self.reported_at = float("-inf")  # when its last report went to the leading agent
        self.gate: Whereabouts | None = None  # None until it announces one
        self.made: set[str] = set()  # folders that it made for all tasks
        self.awaits: set[str] = set()  # folders that it waits for the leader task to make
        self.is_halting = False  # it knows the step before which to leave
        self.follows = False  # it waits for checkpoints to score
        self.scores: deque[Event] = deque(maxlen=MOST_SCORES)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended. It may not be forked yet."""
        return self.status is None

    @property
    def code(self) -> int:
        """The exit code, as a shell shows it. Only for a task that has ended."""
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
        """Write one line to the task if its pipes are open."""
        if self.line is not None:
            self.line.send(text)

    def close(self) -> None:
        """Pass on the rest of its output and close its pipes. A second call does nothing."""
        line, self.line = self.line, None
        if line is not None:
            line.close()
