"""Which reports to record: few in a long run, but every task's last step. Pure."""

from __future__ import annotations

from typing import Any


class ReportSampling:
    """Admits two reports a second per task at first, and one every ten seconds after some hours."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._admitted: dict[str, tuple[float, float]] = {}  # task -> when one was admitted, and its own time

    def admits(self, event: dict[str, Any], is_last: bool, now: float) -> bool:
        """Whether to record this report. A task's last report always is, unless it is recorded already."""
        interval = min(max(0.5, (now - self._began) / 600), 10.0)
        when, its_time = self._admitted.get(event["task"], (float("-inf"), float("-inf")))
        if event["t"] == its_time if is_last else now - when < interval:
            return False
        self._admitted[event["task"]] = (now, event["t"])
        return True
