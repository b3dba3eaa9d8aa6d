"""What exists on one machine: the state that host, launcher, task events and shutdown share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Optional

from oarlock.agent.host.task_process import TaskProcess
from oarlock.agent.protocol.wishes import Clear, Made, Wish

# How the tasks have to end. None: they keep running. "stacks": SIGKILL after their stacks. "finish": by
# themselves. "stop": SIGTERM. "clear": SIGKILL.
Ending = Optional[Literal["stacks", "finish", "stop", "clear"]]


@dataclass
class HostState:
    """The wish, and the tasks that exist. All parts of a host share it and change it."""

    wish: Wish = field(default_factory=lambda: Clear(0))
    generation: int = 0
    cleared: int = 0  # no process of this generation, or of an earlier one, is left
    is_ready: bool = False  # the zygote can launch tasks
    is_sweeping: bool = False
    is_leaving: bool = False  # this machine was asked to leave: it accepts no more tasks
    ending: Ending = None
    tasks: dict[str, TaskProcess] = field(default_factory=dict)
    made: Made = field(default_factory=lambda: Made(0, frozenset()))  # its generation may not run yet

    def alive(self) -> list[TaskProcess]:
        """The tasks that have not ended, including those that are being forked."""
        return [process for process in self.tasks.values() if process.is_alive]

    def tell_made(self) -> None:
        """Notify each task of the finished folders that it waits for."""
        if self.made.generation == self.generation:
            for process in self.alive():
                for folder in sorted(process.awaits & self.made.folders):
                    process.awaits.discard(folder)
                    process.send(f"made:{folder}")
