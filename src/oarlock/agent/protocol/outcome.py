"""How one task of a generation is running or has ended, as its host reports it to the conductor. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from oarlock.agent.protocol import checked_events
from oarlock.agent.protocol import checked_fields as checked
from oarlock.agent.protocol.wire import Message, WireError
from oarlock.run.quick_dataclass import dataclass
from oarlock.run.run_events import Event

MOST_SCORES = 64  # that a status repeats: a longer cut ends the tasks
_SIGNALS = 64


@dataclass(frozen=True)
class Outcome:
    """One launch of a task and, once it has ended, how."""

    name: str
    launch: int = 1  # counts starts within one generation
    began: float = 0.0
    code: int | None = None  # None: it is running
    signal: int | None = None
    ours: bool = False  # the host ended it: this is no failure
    error: dict[str, Any] | None = None  # the exception it reported
    failed_at: float | None = None
    starved: bool = False  # the kernel killed it for lack of memory
    trouble: str | None = None  # what was wrong with its GPU: a kind from `gpu_failures`
    advice: str | None = None  # which GPU, what happened, what to do
    follows: bool = False  # an evaluator that waits for checkpoints
    scores: tuple[Event, ...] = ()  # its newest reports about checkpoints

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended: it is running, or waits for its fork."""
        return self.code is None

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {**asdict(self), "scores": list(self.scores)}

    @classmethod
    def from_data(cls, data: Any) -> Outcome:
        """Read what a host reports about one task. Raises WireError."""
        message = checked.json_object(data, "task")
        signal = checked.optional(message, "signal", checked.whole)
        if signal is not None and not 0 < signal <= _SIGNALS:
            raise WireError("a task without a valid signal")
        error = message.get("error")
        return cls(
            name=checked.text(message, "name"),
            launch=checked.whole(message, "launch"),
            began=checked.number(message, "began"),
            code=checked.optional(message, "code", checked.exit_code),
            signal=signal,
            ours=checked.flag(message, "ours"),
            error=None if error is None else _error(checked.json_object(error, "error")),
            failed_at=checked.optional(message, "failed_at", checked.number),
            starved=checked.flag(message, "starved") if "starved" in message else False,
            trouble=checked.free_text(message.get("trouble")),
            advice=checked.free_text(message.get("advice")),
            follows=checked.flag(message, "follows") if "follows" in message else False,
            scores=tuple(
                checked_events.event(one, ("report",))
                for one in checked.json_list(message.get("scores", []), "scores", MOST_SCORES)
            ),
        )


def _error(data: Message) -> dict[str, str | None]:
    return {name: checked.free_text(data.get(name)) for name in ("type", "message", "where")}
