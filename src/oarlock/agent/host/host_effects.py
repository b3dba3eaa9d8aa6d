"""What a host needs of the world: its machine, the zygote, and the leading agent.

`real_machine` and `zygote_link` have the real ones; tests have lists. The host itself opens no file and no
socket, and starts no process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from oarlock.agent.host.task_process import TaskChannels, TaskProcess
from oarlock.agent.net.deadlines import Action
from oarlock.agent.task_gpus.gpu_claim import GpuClaim
from oarlock.agent.task_gpus.gpu_trouble import Trouble
from oarlock.agent.zygote.orders import Order, Reply
from oarlock.run.cluster import Task
from oarlock.run.contract import Gang
from oarlock.run.run_events import Event


class Upstream(Protocol):
    """Towards the conductor, in this process or behind a link."""

    def on_event(self, event: Event) -> None:
        """For the record."""

    def on_status(self) -> None:
        """The host's status has changed."""


class Machine(Protocol):
    """Ports, folders and logs of this machine: `real_machine.RealMachine`."""

    def free_ports(self, count: int) -> list[int]:
        """Ports that no process uses now; a task may still find its port taken."""

    def oom_kills(self) -> int:
        """How many processes the kernel has killed here for memory so far."""

    def stdin_for(self, task: Task) -> tuple[int, ...]:
        """The descriptor that is this task's standard input, if it has one."""

    def folders(self, task: Task) -> dict[str, str]:
        """Data, checkpoints, model and logs as this task sees them."""

    def open_line(
        self, task: Task, generation: int, on_lines: Callable[[list[bytes]], None], on_end: Action
    ) -> TaskChannels:
        """Make a task's pipes; `on_lines` gets what it writes on its line for events, until `on_end`."""

    def is_dying(self, process: TaskProcess) -> bool:
        """Whether it runs no more, though the kernel has not cleared up after it yet."""

    def is_active(self, process: TaskProcess) -> bool:
        """Whether it has printed or computed since this was last true."""

    def show_stacks(self, process: TaskProcess) -> None:
        """Have a task show its Python stacks in its log."""

    def watch_gpus(self) -> None:
        """Begin to look at the GPUs here. A second call does nothing."""

    def gpu_claim(self, task: Task, env: Mapping[str, str]) -> GpuClaim:
        """Which GPUs a task has that is launched with these variables."""

    def gpu_figures(self, processes: Sequence[TaskProcess]) -> list[dict[str, Any]] | None:
        """What the GPUs of each task say: fields of a `gpu` event. Empty: it uses none, or they have said
        nothing yet. None: this machine has no GPU."""

    def gpu_trouble(self, process: TaskProcess) -> Trouble | None:
        """Why a task failed, if its GPU had to do with that."""

    def gpu_memory_held(self, dead: Sequence[TaskProcess], since: float) -> str | None:
        """Which GPUs still hold memory of tasks that were gone at `since`, in words; empty: none. None: it is
        not known yet."""


class Zygote(Protocol):
    """The parent of this machine's tasks."""

    warm: bool

    @property
    def pid(self) -> int:
        """The pid that tasks see as their parent's."""

    @property
    def is_adopted(self) -> bool:
        """Whether an earlier run did its imports."""

    @property
    def keeper(self) -> int | None:
        """The process that keeps the imports, or will after the run."""

    @property
    def keep(self) -> float:
        """Seconds for which its imports stay after the run."""

    def start(self, tasks: int, on_reply: Callable[[Reply], None], on_lost: Action) -> None:
        """Start a zygote, or adopt one, for that many tasks. `on_lost` is called once it has died."""

    def send(self, order: Order, fds: tuple[int, ...] = ()) -> None:
        """Send an order without blocking. The descriptors stay the caller's, to close at once."""

    def hurry(self) -> None:
        """The tasks end: kill it if it leaves orders without an answer for long."""

    def bury(self) -> str:
        """After it died: how it ended, in words."""

    def close(self) -> None:
        """End it with all tasks, or let it stay for the next run."""


class Supply(Protocol):
    """Fetches what tasks resume from, where the leader's folders are not shared: `transfer.Getting`."""

    def has(self, gang: Gang) -> bool:
        """Whether all of it is here."""

    def get(self, gang: Gang, then: Callable[[str | None], None]) -> None:
        """Call `then` with None, or with why it is not here."""

    def has_unscored(self) -> bool:
        """Whether every checkpoint that is left to score is here, once training has ended."""
