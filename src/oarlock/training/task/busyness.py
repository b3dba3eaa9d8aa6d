"""How much of its time this task works, and how much it waits for others: who holds a gang back is busy all
the time, and the others are not.

A thread looks twenty times a second. Who is inside a framework waits as far as the process uses no processor
(a collective, a queue of the device); who is in code of its own works, whatever it does there. On a GPU,
where waiting for the device looks like work, all look busy and nobody is blamed.
"""

from __future__ import annotations

import os
import sys
import threading
import time

_LOOK = 0.05  # seconds
_MEMORY = 0.99  # weight of what was, at each look: about five seconds
_WARM_UP = 40  # looks before anything is said
_ELSEWHERE = ("tensorflow", "torch", "jax", "jaxlib", "keras", "tf_keras", "oarlock")

_watch: _Watch | None = None


def start() -> None:
    """From now on `share` knows. Called in the thread that trains, when its loop begins."""
    global _watch
    if _watch is None or _watch.pid != os.getpid():
        _watch = _Watch(threading.get_ident())


def share() -> float | None:
    """Of the last seconds, 0 to 1; None as long as nothing can be said."""
    if _watch is None or _watch.pid != os.getpid() or _watch.looks < _WARM_UP:
        return None
    return round(_watch.busy, 3)


class _Watch:
    def __init__(self, thread: int) -> None:
        self.pid = os.getpid()
        self.busy = 0.0
        self.looks = 0
        self._thread = thread
        threading.Thread(target=self._look, name="oarlock-busyness", daemon=True).start()

    def _look(self) -> None:
        pause = threading.Event()
        then, used = time.monotonic(), time.process_time()
        while not pause.wait(_LOOK):
            now, uses = time.monotonic(), time.process_time()
            busy = 1.0 if self._is_at_its_own() else min(1.0, (uses - used) / (now - then))
            then, used = now, uses
            self.looks += 1
            memory = min(_MEMORY, 1 - 1 / self.looks)
            self.busy = memory * self.busy + (1 - memory) * busy

    def _is_at_its_own(self) -> bool:
        frame = sys._current_frames().get(self._thread)
        name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
        return name.partition(".")[0] not in _ELSEWHERE
