"""Imports what restarts will need, while the first tasks are already running.

A thread of the lowest priority imports, so the zygote still obeys and reaps. No fork happens in the meantime,
because the child would have half a module without the thread that imports it.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from oarlock.agent.zygote import preimport

_LOWEST = 19  # as a nice value


class LaterImports:
    """The thread calls `on_done` as it ends. `why_not`: why this process must no longer be forked, if an
    import is the reason."""

    def __init__(self, on_done: Callable[[], None] = lambda: None) -> None:
        self.why_not: str | None = None
        self._on_done = on_done
        self._wanted: list[str] = []
        self._is_working = self._is_awaited = False
        self._thread: threading.Thread | None = None

    def add(self, modules: Sequence[str]) -> None:
        """Import the ones that a restart may need, one after the other. Returns at once."""
        self._wanted += [name for name in modules if name not in sys.modules and name in preimport.LATER]
        if self._wanted and self._thread is None:
            self._is_working = True
            self._thread = threading.Thread(target=self._in_background, name="oarlock-imports", daemon=True)
            self._thread.start()

    @property
    def is_importing(self) -> bool:
        """Whether `finish` would take long: a thread is importing, or something is left to import."""
        return self._thread is not None and (self._is_working or bool(self._wanted))

    def finish(self) -> None:
        """Before a fork, wait for the current import, then import the rest here. The child needs all."""
        if self._thread is None:
            return
        self._is_awaited = True
        self._thread.join()
        self._thread, self._is_awaited = None, False
        self._import_wanted()

    def _in_background(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)  # of this thread only
        self._import_wanted()
        self._is_working = False
        self._on_done()

    def _import_wanted(self) -> None:
        before = preimport.Traces.now()
        gc.disable()  # as for the first imports
        while self._wanted and not self._is_awaited:
            try:
                importlib.import_module(self._wanted.pop(0))
            except Exception:
                continue  # the program gets it some other way, or works without it
        gc.freeze()
        gc.enable()
        # Sockets are no trace of an import here: the next launch brings the sockets of its task.
        traces = replace(preimport.Traces.now(), sockets=before.sockets)
        why_not = preimport.why_not_forkable() or traces.why_not(before)
        self.why_not = self.why_not or why_not
