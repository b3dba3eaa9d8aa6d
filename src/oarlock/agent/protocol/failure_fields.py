"""How a task failed, in words for a user and as the run's exit code. Pure.

Both processes that restart tasks use these words: the leading agent, and the ingest stage of each machine.
"""

from __future__ import annotations

import signal
from typing import Any

from oarlock.agent.protocol.outcome import Outcome
from oarlock.run.error_text import error_text


def describe(outcome: Outcome) -> dict[str, Any]:
    """Fields of a `restart` or `end` event."""
    fields: dict[str, Any] = {"task": outcome.name, "reason": _reason(outcome)}
    if outcome.error:
        fields.update({key: outcome.error.get(key) for key in ("type", "message", "where")})
    return fields


def exit_code(outcome: Outcome | None) -> int:
    """The run's exit code. A task that raised, but was killed before it could exit, would have given 1."""
    if outcome is None or (outcome.error and outcome.signal):
        return 1
    return outcome.code or 1


def _reason(outcome: Outcome) -> str:
    if outcome.advice:
        return outcome.advice
    if outcome.error:
        return error_text(outcome.error.get("type"), outcome.error.get("message"))
    if outcome.is_alive or outcome.ours:
        return "it made no progress"
    if outcome.starved:
        role = outcome.name.rpartition("-")[0]
        return f"killed because memory ran out: use smaller batches, or on a cluster more roles.{role}.memory"
    if outcome.signal is not None:
        return f"killed by {_name(outcome.signal)}"
    return f"exit code {outcome.code}"


def _name(number: int) -> str:
    """The signal's name. Real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
