"""What tasks and agents send about gates, where all ranks save or stop before the same step. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal, Union

from oarlock.agent.protocol import checked_fields as checked
from oarlock.agent.protocol.wire import Message, WireError
from oarlock.run.quick_dataclass import dataclass

GATE_EVENTS = ("gate", "ask", "at")  # what a task sends about its gate; never in the record
Purpose = Literal["save", "halt"]


@dataclass(frozen=True)
class Whereabouts:
    """Where a task with a gate is, according to its last message."""

    loop: int  # counts the training loops of this process
    asks: int = 0  # how often it has asked for a save
    meeting: int = 0  # the last one that it answered
    step: int | None = None  # the last step it had let in by then; None: outside any loop

    def after(self, event: Mapping[str, Any]) -> Whereabouts:
        """Return a copy updated with an event from `messages.task_event`."""
        if event["kind"] == "ask":
            return replace(self, asks=self.asks + (event["purpose"] == "save"))
        if event["kind"] == "gate":
            return replace(self, loop=event["loop"])
        return replace(self, loop=event["loop"], meeting=event["meeting"], step=event["step"])

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Any) -> Whereabouts:
        """Read what a host reports about one task's gate. Raises WireError."""
        message = checked.json_object(data, "gate")
        return cls(
            loop=checked.whole(message, "loop"),
            asks=checked.whole(message, "asks"),
            meeting=checked.whole(message, "meeting"),
            step=checked.step(message),
        )


@dataclass(frozen=True)
class WhereAreYou:
    """Ask every trainer which step it is at."""

    meeting: int

    @property
    def line(self) -> str:
        """The line that a host writes to the task."""
        return f"where {self.meeting}"

    def to_data(self) -> Message:
        """Return it as JSON data, for `gate_message`; `wishes.ToGates` adds the generation."""
        return {"do": "where", "meeting": self.meeting}


@dataclass(frozen=True)
class MeetAt:
    """Have every trainer save, or halt, before this step."""

    meeting: int
    purpose: Purpose
    step: int

    @property
    def line(self) -> str:
        """The line that a host writes to the task."""
        return f"meet {self.meeting} {self.purpose} {self.step}"

    def to_data(self) -> Message:
        """Return it as JSON data, for `gate_message`; `wishes.ToGates` adds the generation."""
        return {"do": "meet", "meeting": self.meeting, "purpose": self.purpose, "step": self.step}


@dataclass(frozen=True)
class CarryOn:
    """Release every trainer: there was no agreement."""

    meeting: int

    @property
    def line(self) -> str:
        """The line that a host writes to the task."""
        return f"carry-on {self.meeting}"

    def to_data(self) -> Message:
        """Return it as JSON data, for `gate_message`; `wishes.ToGates` adds the generation."""
        return {"do": "carry-on", "meeting": self.meeting}


GateMessage = Union[WhereAreYou, MeetAt, CarryOn]
GATE_MESSAGES = ("where", "meet", "carry-on")


def gate_message(data: Message) -> GateMessage:
    """Read one of GATE_MESSAGES, which the leading agent sends to all gates."""
    meeting = checked.whole(data, "meeting")
    if data["do"] == "where":
        return WhereAreYou(meeting)
    if data["do"] == "carry-on":
        return CarryOn(meeting)
    step, purpose = checked.step(data), data.get("purpose")
    if step is None or purpose not in ("save", "halt"):
        raise WireError("a meeting without a step or a purpose")
    return MeetAt(meeting, purpose, step)
