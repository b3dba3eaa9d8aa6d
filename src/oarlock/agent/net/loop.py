"""One thread and one selector: calls back when a file is ready or a named deadline has passed.

`select` here is the only call in an agent that blocks, and every wait has a deadline.
"""

from __future__ import annotations

import heapq
import selectors
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Union

from oarlock.agent.net.deadlines import Action

File = Union[int, socket.socket]


class Loop:
    """The event loop of one agent. It is the `Deadlines` of the parts that do no I/O."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._deadlines: dict[str, tuple[float, Action]] = {}
        self._heap: list[tuple[float, str]] = []
        self._wakers: list[socket.socket] = []
        self._soon: list[Action] = []

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def turn(self) -> None:
        """Wait until a file is ready or a deadline passes, and handle all that are due."""
        while self._soon:
            now, self._soon = self._soon, []
            for action in now:
                action()
        for key, mask in self._selector.select(self._until_next_deadline()):
            # An earlier action may have closed this file, and another file may have its number by now.
            if self._selector.get_map().get(key.fd) is not None and self._selector.get_key(key.fd) == key:
                readable, writable = key.data
                if mask & selectors.EVENT_WRITE and writable is not None:
                    writable()
                elif mask & selectors.EVENT_READ and readable is not None:
                    readable()
        self._pass_deadlines(time.monotonic())

    def watch(self, file: File, readable: Action | None = None, writable: Action | None = None) -> None:
        """Call these when the file is readable or writable. A second call replaces the first."""
        mask = (selectors.EVENT_READ if readable else 0) | (selectors.EVENT_WRITE if writable else 0)
        if self.watches(file):
            self._selector.modify(file, mask, (readable, writable))
        else:
            self._selector.register(file, mask, (readable, writable))

    def watches(self, file: File) -> bool:
        """Whether the file is being watched."""
        return file in self._selector.get_map()

    def forget(self, file: File) -> None:
        """Stop watching the file, which may be unknown. Call this before you close it."""
        if self.watches(file):
            self._selector.unregister(file)

    def soon(self, action: Action) -> None:
        """Call `action` in the next turn, after the current action has returned."""
        self._soon.append(action)

    def after(self, name: str, seconds: float, action: Action) -> None:
        """Call `action` once, after that time. Setting the same deadline again moves it."""
        when = time.monotonic() + seconds
        before = self._deadlines.get(name)
        self._deadlines[name] = (when, action)
        # A deadline that moves to later keeps its entry in the heap, which is corrected when it comes up: a
        # deadline that moves ten times a second must not fill the heap.
        if before is None or when < before[0]:
            heapq.heappush(self._heap, (when, name))

    def cancel(self, name: str) -> None:
        """Remove that deadline, whether or not it is set."""
        self._deadlines.pop(name, None)

    def expects(self, name: str) -> bool:
        """Whether that deadline is set and has not passed."""
        return name in self._deadlines

    def on_signals(self, numbers: list[int], action: Callable[[int], None]) -> None:
        """Call `action(number)` for each of these signals, as the loop turns. Unblocks them."""
        wake, wake_write = socket.socketpair()
        for end in (wake, wake_write):
            end.setblocking(False)
        self._wakers += [wake, wake_write]
        for number in numbers:
            signal.signal(number, _ignore)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # pending ones arrive now
        self.watch(wake, lambda: _each(wake.recv(64), action))

    def _until_next_deadline(self) -> float | None:
        if self._soon:
            return 0.0
        return max(0.0, self._heap[0][0] - time.monotonic()) if self._heap else None

    def _pass_deadlines(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            _, name = heapq.heappop(self._heap)
            when, action = self._deadlines.get(name, (None, None))
            if when is None or action is None:
                continue
            if when > now:
                heapq.heappush(self._heap, (when, name))
                continue
            del self._deadlines[name]
            action()


class LoopPart(Loop):
    """A loop for one part of an agent. It turns with the whole; its deadlines have names of their own."""

    def __init__(self, whole: Loop, prefix: str) -> None:
        self._whole = whole
        self._prefix = prefix
        self._selector = whole._selector

    def soon(self, action: Action) -> None:
        """Call `action` in the next turn of the whole loop."""
        self._whole.soon(action)

    def after(self, name: str, seconds: float, action: Action) -> None:
        """Set a deadline of this part."""
        self._whole.after(self._prefix + name, seconds, action)

    def cancel(self, name: str) -> None:
        """Remove a deadline of this part."""
        self._whole.cancel(self._prefix + name)

    def expects(self, name: str) -> bool:
        """Whether a deadline of this part is set."""
        return self._whole.expects(self._prefix + name)


def _ignore(*_: Any) -> None:
    """Do nothing. Python writes to the wake-up descriptor only for signals that have a handler."""


def _each(numbers: bytes, action: Callable[[int], None]) -> None:
    for number in numbers:
        action(number)
