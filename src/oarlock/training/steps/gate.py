"""The gate before every step: it lets all ranks of a gang do something, save or halt, before the same step.

The leading agent asks `where`; a listening thread answers at once with the last step that was let in, because
the training thread may be inside a collective, waiting for a rank that is at the gate. After its answer the
gate holds back the step after the next, until the agent names a step that no rank can have passed.

    where 7             ->  {"kind": "at", "meeting": 7, "loop": 1, "step": 41}     step 43 is held back
    meet 7 save 44      nothing is held back anymore; enter(44) returns {"save"}
    carry-on 7          not every rank answered, or not every rank is in this loop: continue
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from oarlock.training.task import channel
from oarlock.training.task.context import current

_NOTHING: frozenset[str] = frozenset()
_NO_LIMIT = float("inf")
_AT_ONCE = float("-inf")
_ASK_AGAIN = 1.0  # seconds before a repeated request is passed on


class Gate:
    """The gate of one training loop; `first` is the step that enters first. Without a launcher, a single
    task has its own gate: SIGTERM asks it to halt, unless the program handles SIGTERM itself."""

    def __init__(self, first: int) -> None:
        global _newest
        before = _newest if _newest is not None and _newest._pid == os.getpid() else None
        if before is not None:
            before.leave()
        _newest = self
        self._pid: int = os.getpid()
        self._loop: int = before._loop + 1 if before is not None else 1
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self._last = first - 1  # the last step that was let in
        self._limit = _NO_LIMIT  # the last step that may be let in
        self._due: list[tuple[float, str]] = []  # (from this step on, do this)
        self._meeting = 0  # the last question that was answered
        self._answer: int | None = None  # the step in that answer
        self._decided = 0  # the last question that was decided or called off
        self._asked_at = _AT_ONCE
        self._is_over = False
        self._catches = False
        self._is_led = channel.listen(self._on_request)
        if self._is_led:
            channel.send({"kind": "gate", "loop": self._loop})
        elif "OARLOCK_FD" not in os.environ and current().world == 1:
            self._catch_sigterm()

    def enter(self, step: int) -> frozenset[str]:
        """Call before `step` begins. Returns what all ranks do before it; usually nothing.

        Waits while the leading agent collects answers. The agent has the deadline: it decides, calls off or
        ends this task; if the agent itself is gone, the channel says so.
        """
        with self._lock:
            while step > self._limit:
                self._moved.wait()
            self._last = step
            if not self._due:
                return _NOTHING
            return self._take(step)

    def ask(self, purpose: str) -> None:
        """Request that all ranks do this soon. May be repeated before every step, until `enter` returns
        it."""
        if self._is_over or any(due == purpose for _, due in self._due):
            return
        if not self._is_led:
            self._due.append((_AT_ONCE, purpose))
            return
        now = time.monotonic()
        if now - self._asked_at >= _ASK_AGAIN:
            self._asked_at = now
            channel.send({"kind": "ask", "purpose": purpose}, patience=0)

    def leave(self) -> None:
        """End the loop: no rank has to wait for this task until it has another gate."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            self._limit = _NO_LIMIT
            if self._is_led and (self._due or self._meeting > self._decided):
                self._reply(None)  # what was due before a later step will not happen
            self._due.clear()
        if self._catches and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _take(self, step: int) -> frozenset[str]:
        """Remove what is due, one item at a time: a signal handler may add to the list at any moment."""
        due = [entry for entry in self._due if entry[0] <= step]
        for entry in due:
            self._due.remove(entry)
        return frozenset(purpose for _, purpose in due)

    def _on_request(self, request: str) -> None:
        """Called by the listening thread."""
        words = request.split()
        with self._lock:
            if not words:  # the agent is gone and will not decide anymore
                self._release()
            elif words[0] == "where":
                self._on_where(int(words[1]))
            elif words[0] in ("meet", "carry-on") and self._decided < int(words[1]) == self._meeting:
                self._decided = self._meeting
                if words[0] == "meet" and not self._is_over:
                    self._due.append((int(words[3]), words[2]))
                self._release()

    def _on_where(self, meeting: int) -> None:
        if meeting > self._meeting:
            self._meeting = meeting
            self._answer = None if self._is_over else self._last
            if not self._is_over:
                self._limit = self._last + 1
        self._reply(None if self._is_over else self._answer)  # again, in case the first answer was lost

    def _reply(self, step: int | None) -> None:
        """Send while holding the lock, so that the last answer is the true one."""
        channel.send({"kind": "at", "meeting": self._meeting, "loop": self._loop, "step": step})

    def _release(self) -> None:
        self._limit = _NO_LIMIT
        self._moved.notify_all()

    def _catch_sigterm(self) -> None:
        is_ours_to_set = threading.current_thread() is threading.main_thread()
        if is_ours_to_set and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._catches = True

    def _on_sigterm(self, *_: Any) -> None:
        """Takes no lock: the interrupted thread may hold it. A second SIGTERM ends the process as usual."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._due.append((_AT_ONCE, "halt"))


_newest: Gate | None = None  # a task is in one loop at a time
