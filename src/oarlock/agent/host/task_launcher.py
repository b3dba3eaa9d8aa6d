"""Launches the tasks of one machine: turns the wish to run a gang into one order to the zygote per task."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from oarlock.agent.host.host_effects import Machine, Upstream, Zygote
from oarlock.agent.host.host_state import HostState
from oarlock.agent.host.task_events import TaskEvents
from oarlock.agent.host.task_process import TaskProcess
from oarlock.agent.host.task_shutdown import TaskShutdown
from oarlock.agent.net.deadlines import Deadlines
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.protocol.wishes import RunTasks
from oarlock.agent.task_side.program_gpus import deciding
from oarlock.agent.zygote.orders import Launch
from oarlock.run import placeholders
from oarlock.run.cluster import Task
from oarlock.run.contract import environment
from oarlock.system.processes import why_no_fork

QUIET = "silence about forks"  # the deadline until which refused forks are not mentioned again
_AGAIN = 1.0  # seconds until the zygote tries to fork again
_NO_PROCESS = 71  # the exit code of a task that could not be forked: EX_OSERR


class TaskLauncher:
    """Orders forks from the zygote, and repeats the order as long as the system refuses."""

    def __init__(
        self,
        loop: Deadlines,
        spec: Spec,
        state: HostState,
        machine: Machine,
        zygote: Zygote,
        upstream: Upstream,
        events: TaskEvents,
        shutdown: TaskShutdown,
    ) -> None:
        self._loop = loop
        self._spec = spec
        self._state = state
        self._machine = machine
        self._zygote = zygote
        self._upstream = upstream
        self._events = events
        self._shutdown = shutdown

    def launch(self, wish: RunTasks, task: Task, launch: int, began: float | None = None) -> None:
        """Open the task's pipes and order its fork. `began`: when the first attempt was, in a later one."""
        generation = self._state.generation
        process = TaskProcess(task, launch, self._loop.time() if began is None else began)
        process.line = self._machine.open_line(
            task, generation, partial(self._events.hear, process), partial(self._events.on_line_end, process)
        )
        self._state.tasks[task.name] = process
        program = self._spec.program_of(task.role)
        stdin = self._machine.stdin_for(task)
        env = {
            **self._spec.env_of(task.role),
            **environment(
                wish.gang, task, self._machine.folders(task), self._spec.observe, self._spec.chief_name
            ),
            **self._spec.gpus.variables(wish.gang, task),
        }
        process.program, process.gpu_env = str(program.target), deciding(env)
        process.claim = self._machine.gpu_claim(task, env)
        order = Launch(
            task=task.name,
            parent=self._zygote.pid,
            cwd=self._spec.cwd,
            program=replace(program, args=placeholders.fill(program.args, wish.gang, task)),
            seed=wish.gang.seed,
            identity=f"{task.name} rank {task.rank} generation {generation} launch {launch}",
            env=env,
            has_input=bool(stdin),
        )
        self._zygote.send(order, process.line.ends + stdin)
        process.line.handed_over()

    def relaunch(self, wish: RunTasks) -> None:
        """Restart the tasks that have ended and now have a higher launch number."""
        for name, launch in wish.launches.items():
            process = self._state.tasks.get(name)
            if process is not None and not process.is_alive and process.launch < launch:
                process.close()
                self.launch(wish, process.task, launch)

    def on_launched(self, name: str, pid: int) -> None:
        """Note the pid. From now on signals reach the task, and it gets those that it missed."""
        process = self._state.tasks[name]
        process.pid = pid
        self._upstream.on_event({"kind": "task", "task": name, "state": "started", "pid": pid})
        self._shutdown.reach_late(process)

    def on_not_launched(self, name: str, errno: int) -> None:
        """The system refuses another process. That passes when other processes end, so the host retries for
        as long as a gang may take to form."""
        process = self._state.tasks[name]
        patience = self._spec.limits.rendezvous
        why = f"{name} cannot start: {why_no_fork(errno)}"
        if process.began + patience < self._loop.time():
            process.error = {"type": "OSError", "message": why, "where": None, "t": self._loop.time()}
            self._upstream.on_event({"kind": "error", **process.error, "task": name})
            self._give_up(process)
            return
        if not self._loop.expects(QUIET):
            self._upstream.on_event({"kind": "note", "text": f"{why}; trying again"})
            self._loop.after(QUIET, patience, lambda: None)
        self._loop.after(f"start of {name}", _AGAIN, lambda: self._try_again(process))

    def _try_again(self, process: TaskProcess) -> None:
        if self._state.tasks.get(process.name) is not process or not process.is_alive:
            return
        wish = self._state.wish
        if self._state.ending or not isinstance(wish, RunTasks) or wish.generation != self._state.generation:
            process.ours = True
            self._give_up(process)
            return
        process.close()
        self.launch(wish, process.task, process.launch, process.began)

    def _give_up(self, process: TaskProcess) -> None:
        process.status = _NO_PROCESS << 8
        self._events.tell_exit(process)
        self._upstream.on_status()
        self._shutdown.sweep_if_ended()
