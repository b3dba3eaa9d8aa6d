"""Faults that a user requests, to see that the run survives them (`oarlock chaos`): the hosting half.

The leading agent has checked and recorded the fault (`lead.fault_requests`). A host resumes the tasks that it
paused by itself, whether or not the client that requested the pause is still there.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from oarlock.agent.host.host_effects import Upstream
from oarlock.agent.host.task_process import TaskProcess
from oarlock.agent.net.deadlines import Deadlines
from oarlock.agent.protocol.fault_notes import continued
from oarlock.agent.protocol.wishes import Fault


class Faults:
    """The faults of one host's tasks. `signal_task` signals a live task, as an outside process would."""

    def __init__(
        self,
        loop: Deadlines,
        signal_task: Callable[[TaskProcess, int], None],
        upstream: Upstream,
    ) -> None:
        self.loop = loop
        self.signal_task = signal_task
        self.upstream = upstream

    def inflict(self, fault: Fault, process: TaskProcess) -> None:
        """Kill, pause or continue a live task. A pause ends by itself."""
        if fault.fault == "kill":
            self.signal_task(process, signal.SIGKILL)
        elif fault.fault == "pause":
            self.signal_task(process, signal.SIGSTOP)
            self.loop.after(_pause_of(process), fault.seconds, lambda: self._continue(process))
        else:
            self._continue(process)

    def _continue(self, process: TaskProcess) -> None:
        self.loop.cancel(_pause_of(process))
        if process.is_alive:
            self.signal_task(process, signal.SIGCONT)
            self.upstream.on_event({"kind": "note", "text": continued(process.name)})


def _pause_of(process: TaskProcess) -> str:
    """The name of the deadline at which a paused task continues."""
    return f"pause of {process.name}"
