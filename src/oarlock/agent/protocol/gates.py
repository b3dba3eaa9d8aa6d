"""What tasks and agents say about gates, at which all ranks save or stop before the same step. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

GATE_EVENTS = ("gate", "ask", "at")  # what a task says about its gate; never in the record
MESSAGES = ("where", "meet", "carry-on")  # what its agent says to it


@dataclass(frozen=True)
class Whereabouts:
    """Where a task with a gate is, as it last told."""

    loop: int  # counts the loops of this process
    asks: int = 0  # how often it has asked for a save
    meeting: int = 0  # the last that it answered
    step: int | None = None  # the last that it had let in then; None: it was in no loop

    def after(self, event: Mapping[str, Any]) -> Whereabouts:
        """What it said, as `messages.task_event` gives it."""
        if event["kind"] == "ask":
            return replace(self, asks=self.asks + (event["purpose"] == "save"))
        if event["kind"] == "gate":
            return replace(self, loop=event["loop"])
        return replace(self, loop=event["loop"], meeting=event["meeting"], step=event["step"])
