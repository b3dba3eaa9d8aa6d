"""The gate before every step, at which all ranks of a gang do something before the same one: save, or halt.

The agent asks `where`; a listening thread answers at once with the last step that was let in, because
the training thread may be inside a collective, waiting for a rank that is at the gate. From its answer
on it holds back the second next step, until the agent names a step that nobody can have passed.

    where 7             ->  {"kind": "at", "meeting": 7, "loop": 1, "step": 41}     step 43 is held back
    meet 7 save 44      nothing is held back any more; enter(44) returns {"save"}
    carry-on 7          not everybody answered, or not everybody is in this loop: never mind
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
    """`first` is the step that will be entered first. Without a launcher, a task that is alone
    keeps its own gate: SIGTERM asks it to halt, unless the program has its own ideas about that."""

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
        self._due: list[tuple[float, str]] = []  # from which step on, and what
        self._meeting = 0  # the last that was answered
        self._answer: int | None = None  # what was said there
        self._decided = 0  # the last that was decided or called off
        self._asked_at = _AT_ONCE
        self._is_over = False
        self._catches = False
        self._is_led = channel.listen(self._hear)
        if self._is_led:
            channel.send({"kind": "gate", "loop": self._loop})
        elif "OARLOCK_FD" not in os.environ and current().world == 1:
            self._catch_sigterm()

    def enter(self, step: int) -> frozenset[str]:
        """To be called before `step` begins: what all ranks do before it, mostly nothing.

        Waits while the agent asks around. It has the deadline: it decides, calls off or ends this task,
        and when it is gone itself, the line says so.
        """
        with self._lock:
            while step > self._limit:
                self._moved.wait()
            self._last = step
            if not self._due:
                return _NOTHING
            return self._take(step)

    def ask(self, purpose: str) -> None:
        """Have all ranks do this soon. May be said again before every step, until `enter` returns it."""
        if self._is_over or any(one == purpose for _, one in self._due):
            return
        if not self._is_led:
            self._due.append((_AT_ONCE, purpose))
            return
        now = time.monotonic()
        if now - self._asked_at >= _ASK_AGAIN:
            self._asked_at = now
            channel.send({"kind": "ask", "purpose": purpose}, patience=0)

    def leave(self) -> None:
        """The loop is over: nobody has to wait for this task, until there is another gate."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            self._limit = _NO_LIMIT
            if self._is_led and (self._due or self._meeting > self._decided):
                self._tell(None)  # what was to be done before a later step will not be
            self._due.clear()
        if self._catches and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _take(self, step: int) -> frozenset[str]:
        """One by one: a signal may add to them at any moment."""
        due = [one for one in self._due if one[0] <= step]
        for one in due:
            self._due.remove(one)
        return frozenset(purpose for _, purpose in due)

    def _hear(self, request: str) -> None:
        """In the listening thread."""
        words = request.split()
        with self._lock:
            if not words:  # the agent is gone, and nobody will decide any more
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
        self._tell(None if self._is_over else self._answer)  # again, if the first answer was lost

    def _tell(self, step: int | None) -> None:
        """Under the lock, so that what is said last is true."""
        told: dict[str, Any] = {"kind": "at", "meeting": self._meeting, "loop": self._loop, "step": step}
        channel.send(told)

    def _release(self) -> None:
        self._limit = _NO_LIMIT
        self._moved.notify_all()

    def _catch_sigterm(self) -> None:
        is_ours_to_set = threading.current_thread() is threading.main_thread()
        if is_ours_to_set and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._catches = True

    def _on_sigterm(self, *_: Any) -> None:
        """No lock here: the thread that was interrupted may hold it. The second one ends us as usual."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._due.append((_AT_ONCE, "halt"))


_newest: Gate | None = None  # a task is in one loop at a time
