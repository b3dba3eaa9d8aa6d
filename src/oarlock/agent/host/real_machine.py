"""The machine that an agent runs on, as its host uses it: ports, folders, logs, pipes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oarlock.agent.host.stack_requests import StackRequests
from oarlock.agent.host.task_pipes import TaskPipes
from oarlock.agent.host.task_process import TaskProcess
from oarlock.agent.net.deadlines import Action
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.record.run_record import Record
from oarlock.agent.task_gpus.gpu_claim import GpuClaim
from oarlock.agent.task_gpus.gpu_trouble import Trouble
from oarlock.agent.task_gpus.machine_gpus import Claimant, MachineGpus
from oarlock.run.cluster import Task
from oarlock.system import control_group, free_ports, processes
from oarlock.system.processors import ProcessorTime


class RealMachine:
    """The `host_effects.Machine` of a real agent.

    `has_input`: the leader task gets this process's own standard input; nothing else reads it.
    """

    def __init__(self, loop: Loop, spec: Spec, record: Record, has_input: bool = False) -> None:
        self._loop = loop
        self._spec = spec
        self._record = record
        self._has_input = has_input
        self._stacks = StackRequests(loop)
        self._processor_time = ProcessorTime()
        self._gpus = MachineGpus()
        self._written: dict[str, int] = {}  # task -> bytes of output at the last look

    def free_ports(self, count: int) -> list[int]:
        """Find ports on the address where this machine's tasks are reachable."""
        return free_ports.free_ports(count, self._spec.bind)

    def oom_kills(self) -> int:
        """Read the kernel's count for this control group."""
        return control_group.kills()

    def stdin_for(self, task: Task) -> tuple[int, ...]:
        """The input of `oarlock run` for the leader task, and none for others."""
        return (0,) if self._has_input and task.is_leader else ()

    def folders(self, task: Task) -> dict[str, str]:
        """Every task must be able to "save", as collectives require, but only the leader's model is kept."""
        if task.is_leader:
            return self._spec.folders
        model = self._record.scratch(task.name) / "model"
        model.mkdir(exist_ok=True)
        return {**self._spec.folders, "model": str(model)}

    def open_line(
        self, task: Task, generation: int, on_lines: Callable[[list[bytes]], None], on_end: Action
    ) -> TaskPipes:
        """Make a task's pipes. Its output goes to its log in the record."""
        return TaskPipes(self._loop, self._record.log(generation, task.name), on_lines, on_end)

    def is_dying(self, process: TaskProcess) -> bool:
        """Ask the kernel."""
        return process.pid is not None and processes.is_dying(process.pid)

    def is_active(self, process: TaskProcess) -> bool:
        """Compare its output and its processor time with those of the last call."""
        written = 0 if process.line is None else process.line.written
        before, self._written[process.name] = self._written.get(process.name, 0), written
        return written != before or process.pid is None or self._processor_time.is_used(process.pid)

    def show_stacks(self, process: TaskProcess) -> None:
        """Signal the task, and mark in its log where the dump ends."""
        self._stacks.request(process)

    def watch_gpus(self) -> None:
        """Start the thread that reads the GPUs."""
        self._gpus.start()

    def gpu_claim(self, task: Task, env: Mapping[str, str]) -> GpuClaim:
        """Add the variables of this process: a task has them too."""
        return self._gpus.claim(self._spec.gpus, task.name, {**os.environ, **env})

    def gpu_figures(self, processes: Sequence[TaskProcess]) -> list[dict[str, Any]] | None:
        """Take the figures from the newest reading."""
        return self._gpus.figures([Claimant(process.claim, process.pid) for process in processes])

    def gpu_room(self, process: TaskProcess) -> int:
        """Take it from the newest reading."""
        return self._gpus.room(Claimant(process.claim, process.pid))

    def gpu_trouble(self, process: TaskProcess) -> Trouble | None:
        """Judge by its exception or, if a crash left no time for one, by the end of its output."""
        words = ""
        if process.error:
            words = f"{process.error.get('type')}: {process.error.get('message')}"
        elif process.line is not None and process.signal != signal.SIGKILL:
            process.line.read_output()
            words = process.line.tail.decode(errors="replace")
        return self._gpus.trouble(Claimant(process.claim, process.pid), words)

    def gpu_memory_held(self, dead: Sequence[TaskProcess], since: float) -> str | None:
        """Judge by a reading that began after the tasks were gone."""
        claimants = [Claimant(process.claim, process.pid, process.is_followed) for process in dead]
        return self._gpus.held(claimants, since)
