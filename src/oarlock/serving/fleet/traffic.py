"""How a server is doing, from its replicas' counters: for the run's record and `oarlock status`."""

from __future__ import annotations

import time
from typing import Any

from oarlock.serving.counters import Blocks, quantile

_TIMES = "request_seconds"


class Traffic:
    """Compares the counts with those of the previous look."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._looked = time.monotonic()
        self._requests = 0.0
        self._times: list[float] = []

    def look(self) -> dict[str, Any]:
        """Return the requests so far, and the rate, 99th percentile and queue since the previous look."""
        sums = self._blocks.sums()
        requests = sum(values[0] for key, values in sums.items() if key.name == "requests_total")
        times = [sum(column) for column in zip(*(v for k, v in sums.items() if k.name == _TIMES))]
        queue = sum(values[0] for key, values in sums.items() if key.name == "queue_rows")
        now = time.monotonic()
        recent = [new - old for new, old in zip(times, self._times or [0.0] * len(times))]
        slowest = quantile(_TIMES, recent, 0.99)
        found: dict[str, Any] = {
            "step": int(requests),
            "requests_per_s": round((requests - self._requests) / max(now - self._looked, 1e-3), 1),
            "queue": int(queue),
        }
        if slowest is not None:
            found["p99_ms"] = round(slowest * 1000, 3)
        self._looked, self._requests, self._times = now, requests, times
        return found
