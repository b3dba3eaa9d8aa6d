"""The other agents of a run that simulates several machines on this one. The leading agent starts and
restarts them, and they end with it. On Kubernetes, pods take their place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.spec import Spec
from oarlock.system import processes

_FAREWELL = 10.0
_WAITS = (0.1, 0.5, 2.0, 5.0)  # seconds before the next start of an agent that keeps dying


class LocalAgents:
    """Starts an agent for every machine except the leading agent's, and restarts those that die."""

    def __init__(self, loop: Loop, spec: Spec, on_death: Callable[[str, int], None]) -> None:
        self.loop = loop
        self.spec = spec
        self.on_death = on_death
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.deaths: dict[int, int] = {}
        self.is_dismissed = False

    def start(self) -> None:
        """Start all of them. Each joins through the coordinator, like a pod's agent."""
        for machine in range(1, self.spec.machines):
            self._start(machine)

    def look_after(self) -> None:
        """Replace the agents that have ended. Call this whenever a child of this process has ended."""
        for machine, process in list(self.processes.items()):
            if process.poll() is not None and not self.is_dismissed:
                del self.processes[machine]
                processes.release(process.pid)
                self.on_death(self.spec.name_of(machine), processes.shell_code(process.returncode))
                died = self.deaths[machine] = self.deaths.get(machine, 0) + 1
                wait = _WAITS[min(died, len(_WAITS)) - 1]
                self.loop.after(f"start of machine {machine}", wait, partial(self._start, machine))

    def dismiss(self) -> None:
        """Restart no agent from now on: the run is over."""
        self.is_dismissed = True

    def close(self) -> None:
        """Wait until all agents have ended. Kill those that take too long."""
        for process in self.processes.values():
            processes.await_end(process, _FAREWELL)
            processes.release(process.pid)

    def _start(self, machine: int) -> None:
        words = [sys.executable, "-c", processes.entry("oarlock.agent.__main__"), self.spec.folder]
        self.processes[machine] = subprocess.Popen(
            [*words, "--machine", str(machine), "--with-parent", str(os.getpid())], stdin=subprocess.DEVNULL
        )
        processes.spare(self.processes[machine].pid)
