"""Reaps orphans that have ended; otherwise they would stay zombies for as long as the run. In a pod the agent
is the first process, so it adopts what `oarlock exec` leaves behind.

Children that this process started have an owner here that waits for them at once. A child that is a zombie at
two checks in a row has no owner.
"""

from __future__ import annotations

import os

from oarlock.agent.net.loop import Loop
from oarlock.system import processes

_EVERY = 20.0  # seconds


class Reaping:
    """Checks every `every` seconds, as long as the loop turns."""

    def __init__(self, loop: Loop, every: float = _EVERY) -> None:
        self._loop = loop
        self._every = every
        self._seen: set[int] = set()
        self._look()

    def _look(self) -> None:
        ended = processes.ended_children()
        for pid in ended & self._seen:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass  # its owner reaped it in between
        self._seen = ended
        self._loop.after("reaping", self._every, self._look)
