"""Faults that a user asks for, to see that the run survives them (`oarlock chaos`): the hosting half.

The leading agent has checked and recorded the fault (`lead.fault_requests`). A host continues the tasks that
it paused by itself, whether or not the client that asked for it is still there.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from oarlock.agent.host.task_process import Member
from oarlock.agent.net.deadlines import Deadlines
from oarlock.agent.protocol.fault_notes import continued
from oarlock.agent.protocol.wishes import Fault
from oarlock.run.events import Event


class Faults:
    """Those of one host's tasks. `signal_task` reaches a task that is alive, as a stranger's signal would."""

    def __init__(
        self,
        loop: Deadlines,
        signal_task: Callable[[Member, int], None],
        on_event: Callable[[Event], None],
    ) -> None:
        self.loop = loop
        self.signal_task = signal_task
        self.on_event = on_event

    def inflict(self, fault: Fault, member: Member) -> None:
        if fault.fault == "kill":
            self.signal_task(member, signal.SIGKILL)
        elif fault.fault == "pause":
            self.signal_task(member, signal.SIGSTOP)
            self.loop.after(_pause_of(member), fault.seconds, lambda: self._continue(member))
        else:
            self._continue(member)

    def _continue(self, member: Member) -> None:
        self.loop.cancel(_pause_of(member))
        if member.is_alive:
            self.signal_task(member, signal.SIGCONT)
            self.on_event({"kind": "note", "text": continued(member.name)})


def _pause_of(member: Member) -> str:
    """The deadline at which a paused task continues."""
    return f"pause of {member.name}"
