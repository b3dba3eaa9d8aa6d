"""What a host needs: its machine, the zygote, and the leading agent.

`real_machine` and `zygote_link` have the real ones; tests pass lists. The host itself opens no file and no
socket, and starts no process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from oarlock.agent.host.task_process import TaskChannels, TaskProcess
from oarlock.agent.net.deadlines import Action
from oarlock.agent.task_gpus.gpu_claim import GpuClaim
from oarlock.agent.task_gpus.gpu_trouble import Trouble
from oarlock.agent.zygote.orders import Order, Reply, StandBy
from oarlock.run.cluster import Task
from oarlock.run.contract import Gang
from oarlock.run.run_events import Event


class Upstream(Protocol):
    """The way to the conductor, which is in this process or behind a link."""

    def on_event(self, event: Event) -> None:
        """Send an event for the record."""

    def on_status(self) -> None:
        """Handle a change of the host's status."""


class Machine(Protocol):
    """Ports, folders and logs of this machine: `real_machine.RealMachine`."""

    def free_ports(self, count: int) -> list[int]:
        """Ports that no process uses now. A task may still find its port taken."""

    def oom_kills(self) -> int:
        """How many processes the kernel has killed on this machine for lack of memory so far."""

    def stdin_for(self, task: Task) -> tuple[int, ...]:
        """The descriptor that is this task's standard input, if it has one."""

    def folders(self, task: Task) -> dict[str, str]:
        """The folders of data, checkpoints, model and logs, as this task sees them."""

    def open_line(
        self, task: Task, generation: int, on_lines: Callable[[list[bytes]], None], on_end: Action
    ) -> TaskChannels:
        """Make a task's pipes. `on_lines` gets what the task writes on its event line, until `on_end`."""

    def is_dying(self, process: TaskProcess) -> bool:
        """Whether it no longer runs, although the kernel has not cleaned up after it yet."""

    def is_active(self, process: TaskProcess) -> bool:
        """Whether it has printed or computed since the last time this was true."""

    def show_stacks(self, process: TaskProcess) -> None:
        """Have a task write its Python stacks to its log."""

    def watch_gpus(self) -> None:
        """Begin to watch the GPUs of this machine. A second call does nothing."""

    def gpu_claim(self, task: Task, env: Mapping[str, str]) -> GpuClaim:
        """Which GPUs a task gets that is launched now, with these variables."""

    def gpu_figures(self, processes: Sequence[TaskProcess]) -> list[dict[str, Any]] | None:
        """The readings of each task's GPUs, as fields of a `gpu` event. Empty: it uses none, or there is no
        reading yet. None: this machine has no GPU."""

    def gpu_room(self, process: TaskProcess) -> int:
        """The bytes on a task's GPUs that may be used beside it; 0 if none, or if that is not known."""

    def gpu_trouble(self, process: TaskProcess) -> Trouble | None:
        """Why a task failed, if its GPU was involved."""

    def gpu_memory_held(self, dead: Sequence[TaskProcess], since: float) -> str | None:
        """Which GPUs still hold memory of tasks that were gone at `since`, in words; empty if none do. None
        if that is not known yet."""


class Zygote(Protocol):
    """The parent of this machine's tasks."""

    warm: bool

    @property
    def pid(self) -> int:
        """The pid that tasks see as their parent."""

    @property
    def is_adopted(self) -> bool:
        """Whether an earlier run did its imports."""

    @property
    def keeper(self) -> int | None:
        """The process that keeps the imports now, or will after the run."""

    @property
    def keep(self) -> float:
        """For how many seconds its imports stay after the run."""

    @property
    def keeps_gpus(self) -> bool:
        """Whether GPUs may stay open with the imports."""

    def start(self, tasks: int, on_reply: Callable[[Reply], None], on_lost: Action) -> None:
        """Start or adopt a zygote for that many tasks. `on_lost` is called once it has died."""

    def send(self, order: Order, fds: tuple[int, ...] = ()) -> None:
        """Send an order without blocking. The caller keeps the descriptors, and may close them at once."""

    def hurry(self) -> None:
        """Tasks are ending: kill the zygote if it leaves orders unanswered for too long."""

    def bury(self) -> str:
        """Clean up after its death. Returns how it ended, in words."""

    def close(self, standbys: Sequence[StandBy] = ()) -> None:
        """End it with all tasks, or let it stay for the next run, which may find these standbys."""


class Supply(Protocol):
    """Fetches what tasks resume from, if the leader's folders are not shared: `transfer.Getting`."""

    def has(self, gang: Gang) -> bool:
        """Whether all of it is on this machine."""

    def get(self, gang: Gang, then: Callable[[str | None], None]) -> None:
        """Fetch it. `then` is called with None, or with the reason why it is missing."""

    def has_unscored(self) -> bool:
        """Whether, after training, every checkpoint that is left to score is on this machine."""
