"""One line of JSON per request, written a few at a time: a write for each would cost too much."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from oarlock.serving.dialects.exchange import Call

_SOON = 0.2  # seconds that a line may wait
_MOST_WAITING = 200  # lines


class AccessLog:
    """Lines on the replica's standard output."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def note(
        self, scope: dict[str, Any], call: Call | None, dialect: str, status: int, seconds: float, size: int
    ) -> None:
        """Log the request and its answer. Bodies and tokens stay out of it."""
        line = {
            "time": round(time.time(), 3),
            "client": (scope.get("client") or ("",))[0],
            "method": scope["method"],
            "path": scope["path"],
            "dialect": dialect,
            "status": status,
            "ms": round(seconds * 1000, 2),
            "bytes_in": 0 if call is None else len(call.body),
            "bytes_out": size,
        }
        if call is not None and call.served is not None:
            line["version"] = call.served.number
        if call is not None and b"x-request-id" in call.headers:
            line["request"] = call.headers[b"x-request-id"].decode("latin-1")[:100]
        self._lines.append(json.dumps(line))
        if len(self._lines) == 1:
            asyncio.get_running_loop().call_later(_SOON, self.flush)
        elif len(self._lines) >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write the lines that wait."""
        if self._lines:
            text = "\n".join([*self._lines, ""])
            self._lines.clear()
            sys.stdout.write(text)
            sys.stdout.flush()
