"""Ends the tasks of one machine: at once, with grace, or after they have dumped their stacks. Then sweeps."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from oarlock.agent.host.host_effects import Machine, Supply, Upstream, Zygote
from oarlock.agent.host.host_state import HostState
from oarlock.agent.host.task_process import TaskProcess
from oarlock.agent.net.deadlines import Action, Deadlines
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.protocol.wishes import Finish, RunTasks, Stop
from oarlock.agent.zygote.orders import Signal, Sweep

# Deadlines
GRACE, STACKS, OTHERS = "grace", "stacks", "grace of all but evaluators"
SUPPLY = "last checkpoints"
GPU_MEMORY = "memory of dead tasks on GPUs"

_SERVING = 3.0  # seconds for workers that may only serve others to end by themselves
_LOOK = 0.5  # seconds until the next check for what has arrived
_FREED, _LOOK_AGAIN = 5.0, 0.005  # seconds for GPUs to free memory of dead tasks; between checks
_DUMP = 2.0  # seconds for stacks to reach the log before the tasks are killed


class TaskShutdown:
    """`on_room` is called once nothing is left of a generation and a later one is wanted."""

    def __init__(
        self,
        loop: Deadlines,
        spec: Spec,
        state: HostState,
        machine: Machine,
        zygote: Zygote,
        upstream: Upstream,
        supply: Supply | None,
        show_stacks: Action,
        on_room: Action,
    ) -> None:
        self._loop = loop
        self._spec = spec
        self._state = state
        self._machine = machine
        self._zygote = zygote
        self._upstream = upstream
        self._supply = supply
        self._show_stacks = show_stacks
        self._on_room = on_room

    def clear_after_stacks(self) -> None:
        """Have all tasks dump their stacks, wait for these to reach the logs, then clear."""
        if self._state.ending is None:
            self._state.ending = "stacks"
            self._show_stacks()
            self._loop.after(STACKS, _DUMP, self.clear)

    def clear(self, ours: bool = True) -> None:
        """Kill every task and sweep. `ours`: this is no failure of the tasks."""
        self._cancel_deadlines()
        self._state.ending = "clear"
        self._kill(ours)
        self.sweep_if_ended()

    def wind_down(self, wish: Finish | Stop) -> None:
        """Ask every task to end: by itself at first (finish), or with SIGTERM (stop)."""
        state = self._state
        if isinstance(wish, Stop) and wish.now and state.ending != "clear":
            self.clear()
            return
        if state.ending in ("finish" if isinstance(wish, Finish) else "stop", "stop", "clear"):
            return
        for process in state.alive():
            process.send("stop")
        if isinstance(wish, Stop):
            self._terminate()
        else:
            state.ending = "finish"
            self._ask([process for process in state.alive() if process.task.role == "ps"])
            self._loop.after(GRACE, self._patience(), self._terminate)
        self.sweep_if_ended()

    def end_all_but_evaluators(self, wish: RunTasks) -> None:
        """After the leader task is done, evaluators score what is left and the others end as in a finish.
        Called for every such wish, because tasks may have started since the last one."""
        if not wish.is_done:
            return
        self._end_evaluators()
        others = self._others()
        if others and not self._loop.expects(OTHERS):
            for process in others:
                process.send("stop")
            self._ask([process for process in others if process.task.role == "ps"])
            self._loop.after(OTHERS, self._patience(), self._terminate_others)

    def _end_evaluators(self) -> None:
        """Let evaluators end after the remaining checkpoints, once all of these are on this machine."""
        evaluators = [process for process in self._state.alive() if process.task.role == "evaluator"]
        if self._supply is None or self._supply.has_unscored():
            for process in evaluators:
                process.send("stop")
        elif evaluators:
            self._loop.after(SUPPLY, _LOOK, self._end_evaluators)

    def _others(self) -> list[TaskProcess]:
        return [process for process in self._state.alive() if process.task.role != "evaluator"]

    def _terminate_others(self) -> None:
        self._ask(self._others())
        grace = self._spec.limits.grace
        self._loop.after(OTHERS, grace, lambda: self.signal(self._others(), signal.SIGKILL))

    def _patience(self) -> float:
        """Seconds for tasks to end by themselves. In a run with parameter servers, workers may be servers
        too, and wait for a chief that is done."""
        grace = self._spec.limits.grace
        return min(grace, _SERVING) if "ps" in self._spec.sizes else grace

    def signal(self, processes: Sequence[TaskProcess], number: int, ours: bool = True) -> None:
        """Have the zygote signal these tasks, except those without a pid yet. `ours`: this is no failure."""
        pids = tuple(process.pid for process in processes if process.pid is not None)
        if pids:
            self._zygote.send(Signal(int(number), pids, ours))

    def reach_late(self, process: TaskProcess) -> None:
        """Repeat to a new task what was decided during its fork: that could not reach it."""
        if self._state.ending in ("clear", "stop"):
            self.signal([process], signal.SIGKILL)
        elif self._state.ending == "finish" and process.task.role == "ps":
            self._ask([process])

    def sweep_if_ended(self) -> None:
        """Sweep what the tasks left behind, once all that were asked to end have ended."""
        state = self._state
        if not state.ending or state.alive() or state.is_sweeping:
            return
        self._cancel_deadlines()
        if state.cleared < state.generation and state.is_ready:
            state.is_sweeping = True
            self._zygote.hurry()
            self._zygote.send(Sweep())
        else:
            self.on_swept()

    def on_swept(self) -> None:
        """No process of this generation is left. The next one has to find its GPU memory free."""
        if self._state.ending == "clear" and self._state.cleared < self._state.generation:
            self._state.is_sweeping = True
            self._await_memory(self._loop.now(), self._loop.now())
        else:
            self._on_empty()

    def _await_memory(self, began: float, since: float) -> None:
        """Wait until GPUs have freed the memory. Readings from before `since` are out of date."""
        held = self._machine.gpu_memory_held(list(self._state.tasks.values()), since)
        if held == "":
            self._on_empty()
        elif self._loop.now() - began < _FREED:
            since = since if held is None else self._loop.now()
            self._loop.after(GPU_MEMORY, _LOOK_AGAIN, lambda: self._await_memory(began, since))
        else:
            detail = held or "the driver does not say what is in use"
            text = f"the memory of dead tasks on GPUs is not free after {_FREED:g} s: {detail}"
            self._upstream.on_event({"kind": "note", "text": text})
            self._on_empty()

    def _on_empty(self) -> None:
        state, wish = self._state, self._state.wish
        self._loop.cancel(GPU_MEMORY)
        state.is_sweeping = False
        for process in state.tasks.values():
            process.close()
        if not isinstance(wish, RunTasks):
            state.generation = max(state.generation, wish.generation)
        state.cleared = state.generation
        self._upstream.on_status()
        if isinstance(state.wish, RunTasks) and state.wish.generation > state.generation:
            self._on_room()

    def _terminate(self) -> None:
        state = self._state
        state.ending = "stop"  # also for the tasks that are being forked
        self._ask(state.alive())
        grace = state.wish.grace if isinstance(state.wish, Stop) else None
        grace = self._spec.limits.grace if grace is None else grace
        self._loop.after(GRACE, grace, self._kill)

    def _ask(self, processes: Sequence[TaskProcess]) -> None:
        """Send SIGTERM, but never twice: parameter servers may have got it in the finish already."""
        fresh = [process for process in processes if process.pid is not None and not process.is_asked]
        for process in fresh:
            process.is_asked = True
        self.signal(fresh, signal.SIGTERM)

    def _kill(self, ours: bool = True) -> None:
        """Kill every task. Those being forked are killed as soon as they have a pid: see `reach_late`."""
        self._zygote.hurry()
        self.signal(self._state.alive(), signal.SIGKILL, ours)

    def _cancel_deadlines(self) -> None:
        self._loop.cancel(GRACE)
        self._loop.cancel(STACKS)
        self._loop.cancel(OTHERS)
        self._loop.cancel(SUPPLY)
