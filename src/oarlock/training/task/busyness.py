"""The share of time in which this task works instead of waiting for others. A task that holds a gang back
is busy all the time; the others are not.

A thread samples twenty times a second. Inside a framework, the task waits for as long as the process uses no
CPU (a collective, a device queue); in the program's own code it works, whatever it does there. On a GPU,
where waiting for the device looks like work, all tasks look busy and none is blamed.
"""

from __future__ import annotations

import os
import sys
import threading
import time

_PERIOD = 0.05  # seconds between two samples
_MEMORY = 0.99  # weight of the past at each sample: about five seconds
_WARM_UP = 40  # samples before there is an answer
_FRAMEWORKS = ("tensorflow", "torch", "jax", "jaxlib", "keras", "tf_keras", "oarlock")

_sampler: _Sampler | None = None


def start() -> None:
    """Start sampling. Call it in the training thread, when its loop begins."""
    global _sampler
    if _sampler is None or _sampler.pid != os.getpid():
        _sampler = _Sampler(threading.get_ident())


def share() -> float | None:
    """The busy share of the last few seconds, 0 to 1; None until there are enough samples."""
    if _sampler is None or _sampler.pid != os.getpid() or _sampler.samples < _WARM_UP:
        return None
    return round(_sampler.busy, 3)


class _Sampler:
    def __init__(self, thread: int) -> None:
        self.pid = os.getpid()
        self.busy = 0.0
        self.samples = 0
        self._thread = thread
        threading.Thread(target=self._sample, name="oarlock-busyness", daemon=True).start()

    def _sample(self) -> None:
        pause = threading.Event()
        then, used = time.monotonic(), time.process_time()
        while not pause.wait(_PERIOD):
            now, uses = time.monotonic(), time.process_time()
            busy = 1.0 if self._is_in_own_code() else min(1.0, (uses - used) / (now - then))
            then, used = now, uses
            self.samples += 1
            memory = min(_MEMORY, 1 - 1 / self.samples)
            self.busy = memory * self.busy + (1 - memory) * busy

    def _is_in_own_code(self) -> bool:
        frame = sys._current_frames().get(self._thread)
        name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
        return name.partition(".")[0] not in _FRAMEWORKS
