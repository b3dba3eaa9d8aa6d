"""Counts messages that could not be understood, and reports them once per sender and kind of mistake."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from oarlock.agent.net.deadlines import Deadlines
from oarlock.agent.protocol.wire import WireError

_DELAY = 1.0  # seconds before a report, so that it has a count
_KINDS = 10  # per sender, which may be hostile
_SENDERS = 1000
_MORE = "other mistakes"


class DroppedMessages:
    """Calls `say` with one line per sender and kind."""

    def __init__(self, loop: Deadlines, say: Callable[[str], None]) -> None:
        self._loop = loop
        self._say = say
        self._counts: dict[tuple[str, str], int] = {}
        self._unreported: set[tuple[str, str]] = set()

    def add(self, sender: str, what: str | Exception) -> None:
        """Count one. An exception other than WireError is a bug, so its traceback goes to the agent's log."""
        kind = str(what) if isinstance(what, (str, WireError)) else f"it led to {type(what).__name__}"
        key = self._key(sender, kind)
        if key not in self._counts:
            self._unreported.add(key)
            if isinstance(what, Exception) and not isinstance(what, WireError):
                traceback.print_exception(type(what), what, what.__traceback__, file=sys.stderr)
            if not self._loop.expects(self._name):
                self._loop.after(self._name, _DELAY, self.flush)
        self._counts[key] = self._counts.get(key, 0) + 1

    def flush(self) -> None:
        """Report everything that is not reported yet."""
        self._loop.cancel(self._name)
        unreported, self._unreported = sorted(self._unreported), set()
        for sender, kind in unreported:
            count = self._counts[(sender, kind)]
            self._say(f"dropped {count} {'message' if count == 1 else 'messages'} of {sender}: {kind}")

    def _key(self, sender: str, kind: str) -> tuple[str, str]:
        if (sender, kind) in self._counts:
            return sender, kind
        if sum(other == sender for other, _ in self._counts) >= _KINDS:
            return sender, _MORE
        return (sender, kind) if len(self._counts) < _KINDS * _SENDERS else ("others", _MORE)

    @property
    def _name(self) -> str:
        return f"dropped messages {id(self)}"
