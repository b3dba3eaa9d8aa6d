"""What the tasks of one machine report, and how they end."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from oarlock.agent.host import metrics
from oarlock.agent.host.host_effects import Machine, Upstream, Zygote
from oarlock.agent.host.host_state import HostState
from oarlock.agent.host.task_process import TaskProcess
from oarlock.agent.host.task_shutdown import TaskShutdown
from oarlock.agent.net.deadlines import Deadlines
from oarlock.agent.net.dropped_messages import DroppedMessages
from oarlock.agent.protocol import messages
from oarlock.agent.protocol.gates import GATE_EVENTS, Whereabouts
from oarlock.agent.protocol.wishes import Clear, RunTasks
from oarlock.agent.zygote.orders import Exit, Import, OpenGpus, StandBy
from oarlock.run.best_scores import of_checkpoint
from oarlock.run.contract import PREEMPTED
from oarlock.run.observed import expects_more
from oarlock.run.run_events import Event

LIFE, GPUS = "signs of life", "figures of GPUs"  # deadlines
_GPU_INTERVAL, _GPU_SOON = 5.0, 0.5  # seconds between two GPU readings; until the first one
# Free bytes of a GPU: with the first number a standby opens it while the task runs; with less than the second
# it must not keep it open.
_ROOM, _TIGHT = 4 << 30, 2 << 30
_LOOKS = 8  # checks for signs of life in limits.stall
_LAST_WORDS = 5.0  # seconds for a task to end by itself after it reported its error
# Seconds between two reports of a task to the leading agent, which records fewer still. `oarlock.current()`
# keeps to this itself, but a program may write on the line without it.
_REPORT_INTERVAL = 0.1
_MOST_FOLDERS = 1000  # per task


class TaskEvents:
    """Turns what tasks write, and how they end, into events and statuses."""

    def __init__(
        self,
        loop: Deadlines,
        state: HostState,
        machine: Machine,
        zygote: Zygote,
        upstream: Upstream,
        shutdown: TaskShutdown,
        dropped: DroppedMessages,
    ) -> None:
        self._loop = loop
        self._state = state
        self._machine = machine
        self._zygote = zygote
        self._upstream = upstream
        self._shutdown = shutdown
        self._dropped = dropped
        self._oom_kills = machine.oom_kills()
        self._has_heard = False  # a task has written since the last check for signs of life
        self._ran_out = False  # a task has run out of GPU memory: from then on nothing else takes any
        self._has_announced = False  # that GPUs stay open for the next run

    def look_for_life(self, limit: float | None) -> None:
        """Notify the leading agent, a few times in `limit` seconds, that a task here reports, prints or
        computes."""
        if limit is None:
            return
        alive = self._state.alive()
        if alive and (self._has_heard or any(self._machine.is_active(process) for process in alive)):
            self._has_heard = False
            self._upstream.on_event({"kind": "alive"})
        self._loop.after(LIFE, limit / _LOOKS, lambda: self.look_for_life(limit))

    def look_at_gpus(self) -> None:
        """Send the GPU readings of the tasks here to the leading agent, every few seconds."""
        alive = [process for process in self._state.alive() if process.pid is not None]
        figures = self._machine.gpu_figures(alive)
        if figures is None:
            return
        for process, reading in zip(alive, figures):
            if reading:
                self._upstream.on_event({"kind": "gpu", "task": process.name, **reading})
                self._follow(process)
        self._loop.after(GPUS, _GPU_INTERVAL if any(figures) else _GPU_SOON, self.look_at_gpus)

    def _follow(self, process: TaskProcess) -> None:
        """Let the standby of a task open its GPUs now if there is room. Replace it when there no longer is:
        only the end of a process frees what it took."""
        if not process.opened or not isinstance(self._state.wish, RunTasks):
            return
        process.room = self._machine.gpu_room(process)
        if not process.is_followed and not self._ran_out and process.room >= _ROOM:
            self._open_gpus(process, early=True)
        elif process.is_followed and process.room < _TIGHT:
            self._stand_by(process)

    def hear(self, process: TaskProcess, lines: Sequence[bytes]) -> None:
        """Take in the lines that a task wrote. It may write anything; a bad line is dropped."""
        self._has_heard = True
        for line in lines:
            try:
                self._on_event(process, messages.task_event(line, process.name, self._loop.time()))
            except Exception as error:
                self._dropped.add(process.name, error)

    def _on_event(self, process: TaskProcess, event: Event) -> None:
        if of_checkpoint(event):
            process.scores.append(event)  # part of the status, which is sent again after a cut
            self._upstream.on_status()
        elif event["kind"] == "report":
            self._on_report(process, event)
        elif event["kind"] == messages.FOLLOW:
            process.follows = process.task.role == "evaluator"
            self._upstream.on_status()
        elif event["kind"] == messages.IMPORTED:
            self._zygote.send(Import(tuple(event["modules"])))
        elif event["kind"] == messages.GPUS:
            self._on_gpus(process, tuple(event["gpus"]))
        elif event["kind"] == "error":
            self._on_error(process, event)
        elif event["kind"] in GATE_EVENTS:
            self._on_gate(process, event)
        elif event["kind"] in messages.FOLDER_EVENTS:
            self._on_folder(process, event)
        elif event["kind"] == "note":
            self._upstream.on_event({"kind": "note", "text": f"{process.name}: {event['text']}"})
        else:
            self._upstream.on_event(event)

    def _on_gpus(self, process: TaskProcess, opened: tuple[int, ...]) -> None:
        process.opened = opened
        process.used = opened or process.used
        process.room = self._machine.gpu_room(process)
        if isinstance(self._state.wish, RunTasks):
            self._stand_by(process)
        if not self._has_announced and self.for_next_run():
            self._has_announced = True
            keeper = self._zygote.keeper
            text = f"process {keeper} will also keep the GPUs open, with about 0.5 GiB of the memory of each"
            self._upstream.on_event({"kind": "note", "text": text})

    def for_next_run(self) -> tuple[StandBy, ...]:
        """What may stand by for the next run's tasks: their GPUs have room, and nothing went wrong there."""
        if self._ran_out or not self._zygote.keeps_gpus:
            return ()
        users = [process for process in self._state.tasks.values() if process.used and process.room >= _ROOM]
        return tuple(_standby(process, process.used) for process in users)

    def _on_report(self, process: TaskProcess, event: Event) -> None:
        now = self._loop.now()
        if process.metrics.add(event, now):
            self._dropped.add(process.name, f"more than {metrics.MOST} names of metrics")
        if now - process.reported_at >= _REPORT_INTERVAL or not expects_more(event):
            process.reported_at = now
            self._upstream.on_event(process.metrics.newest(now))

    def _on_error(self, process: TaskProcess, event: Event) -> None:
        process.error = {name: event.get(name) for name in ("type", "message", "where")}
        process.failed_at = event["t"]
        self._upstream.on_event(event)
        if process.is_alive and not self._state.ending:
            self._loop.after(
                _last_words_of(process),
                _LAST_WORDS,
                lambda: self._shutdown.signal([process], signal.SIGKILL, ours=False),
            )

    def _on_gate(self, process: TaskProcess, event: Event) -> None:
        """Take in a gate's answer, as part of the status: it is sent again after a cut, and not recorded."""
        if process.gate is not None or event["kind"] == "gate":
            process.gate = (process.gate or Whereabouts(loop=0)).after(event)
            self._upstream.on_status()

    def _on_folder(self, process: TaskProcess, event: Event) -> None:
        """Note that the leader task has made a folder, or that another task waits for one."""
        known = process.awaits if event["kind"] == "await" else process.made
        if len(known) >= _MOST_FOLDERS:
            self._dropped.add(process.name, f"more than {_MOST_FOLDERS} folders that are made once")
        elif event["kind"] == "await":
            process.awaits.add(event["folder"])
            self._state.tell_made()
        elif process.task.is_leader:
            process.made.add(event["folder"])
            self._upstream.on_status()

    def on_line_end(self, process: TaskProcess) -> None:
        """When a task dies, its line closes first. If its GPUs take longer, and it may restart, its standby
        opens them in the meantime."""
        if (
            process.opened
            and isinstance(self._state.wish, (RunTasks, Clear))
            and self._machine.is_dying(process)
        ):
            self._open_gpus(process)

    def dismiss_standbys(self, returning: Sequence[str]) -> None:
        """End what stands by for tasks that do not come back here: it may have memory on their GPUs."""
        for process in self._state.tasks.values():
            if process.opened and process.name not in returning:
                process.opened = ()
                self._stand_by(process)

    def _stand_by(self, process: TaskProcess) -> None:
        process.is_followed = False
        self._zygote.send(_standby(process, process.opened))

    def _open_gpus(self, process: TaskProcess, *, early: bool = False) -> None:
        process.is_followed = True
        self._zygote.send(OpenGpus(process.name, early))

    def on_exits(self, exits: Sequence[Exit]) -> None:
        """Handle exits that the zygote saw together, in a single status."""
        ended = []
        for exit in exits:
            for process in self._state.alive():
                if process.pid == exit.pid:
                    if process.line is not None:
                        self.hear(process, process.line.last_lines())
                    process.status, process.ours = exit.status, exit.ours
                    process.ours |= process.is_halting and process.code == PREEMPTED
                    ended.append(process)
        self._notice_memory(ended)
        for process in ended:
            if process.code != 0 and (process.error or not process.ours) and not process.starved:
                process.trouble = self._machine.gpu_trouble(process)
            if process.trouble is not None:
                self._ran_out |= process.trouble.kind == "memory"
                process.used = ()
                if process.opened:  # the next process starts afresh: what is open already may be broken
                    process.opened = ()
                    self._stand_by(process)
        for process in ended:
            self.tell_exit(process)
        self._upstream.on_status()  # one for all: tasks that died together are judged together
        self._shutdown.sweep_if_ended()

    def on_zygote_lost(self) -> None:
        """Note that the tasks died with the zygote: the kernel kills them then."""
        for process in self._state.alive():
            process.status = signal.SIGKILL
            self.tell_exit(process)

    def tell_exit(self, process: TaskProcess) -> None:
        """Send the last report and the exit of a task. If it failed, note when."""
        if process.metrics:  # the last report is always recorded
            self._upstream.on_event({**process.metrics.all(), "last": True})
        self._loop.cancel(_last_words_of(process))
        if process.code != 0 and not process.ours:
            process.failed_at = process.failed_at or self._loop.time()
        self._upstream.on_event(
            {
                "kind": "task",
                "task": process.name,
                "state": "ended",
                "code": process.code,
                "ours": process.ours,
            }
        )

    def _notice_memory(self, ended: Sequence[TaskProcess]) -> None:
        killed = [process for process in ended if process.signal == signal.SIGKILL and not process.ours]
        if killed and (count := self._machine.oom_kills()) > self._oom_kills:
            self._oom_kills = count
            for process in killed:
                process.starved = True


def _standby(process: TaskProcess, gpus: tuple[int, ...]) -> StandBy:
    return StandBy(process.name, process.program, gpus, dict(process.gpu_env))


def _last_words_of(process: TaskProcess) -> str:
    """The name of the deadline after which a task that reported its error is killed."""
    return f"last words of {process.name}"
