"""Orphans that ended: whoever has become our child that way (in a pod we are its first process, and what
`oarlock exec` leaves behind is ours) is reaped, or it would stay as a zombie for as long as the run.

Children that we started have somebody here who waits for them, at once. A child that is a zombie at two looks
in a row is nobody's.
"""

from __future__ import annotations

import os

from oarlock.agent.net.loop import Loop
from oarlock.system import processes

_EVERY = 20.0  # seconds


class Reaping:
    """Looks every `every` seconds, for as long as the loop turns."""

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
                pass  # its owner came in between
        self._seen = ended
        self._loop.after("reaping", self._every, self._look)
