"""Imports what restarts will need, while the first tasks already run.

A thread of the lowest priority does it: the zygote obeys and reaps meanwhile. No fork happens while it does,
because the child would have half a module without the thread that imports it.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

from oarlock.agent.zygote import preimport

_LOWEST = 19  # of nice


class LaterImports:
    """`why_not` says why this process must not be forked any more, if an import has done that."""

    def __init__(self) -> None:
        self.why_not: str | None = None
        self._wanted: list[str] = []
        self._is_awaited = False
        self._thread: threading.Thread | None = None

    def add(self, modules: Sequence[str]) -> None:
        """Import those of these that a restart may need, one after the other. Returns at once."""
        self._wanted += [name for name in modules if name not in sys.modules and name in preimport.LATER]
        if self._wanted and self._thread is None:
            self._thread = threading.Thread(target=self._in_background, name="oarlock-imports", daemon=True)
            self._thread.start()

    @property
    def is_importing(self) -> bool:
        """Whether a thread is at it, or something is left for `finish`."""
        return self._thread is not None and (self._thread.is_alive() or bool(self._wanted))

    def finish(self) -> None:
        """Before a fork: wait for the import under way, then import the rest here. The child needs it all."""
        if self._thread is None:
            return
        self._is_awaited = True
        self._thread.join()
        self._thread, self._is_awaited = None, False
        self._import_wanted()

    def _in_background(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)  # of this thread alone
        self._import_wanted()

    def _import_wanted(self) -> None:
        before = preimport.Traces.now()
        gc.disable()  # as for the first imports
        while self._wanted and not self._is_awaited:
            try:
                importlib.import_module(self._wanted.pop(0))
            except Exception:
                continue  # the program has it some other way, or does without it
        gc.freeze()
        gc.enable()
        # Sockets are no trace of the import here: the next launch brings those of its task along.
        traces = replace(preimport.Traces.now(), sockets=before.sockets)
        why_not = preimport.why_not_forkable() or traces.why_not(before)
        self.why_not = self.why_not or why_not
