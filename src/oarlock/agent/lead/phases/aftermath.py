"""What follows a generation that ended before its work was done: another generation, or the end. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple, Union

from oarlock.agent.lead.phases import culprit
from oarlock.agent.lead.phases.generation import Generation
from oarlock.agent.lead.phases.restart_budget import Budget
from oarlock.agent.protocol import failure_fields
from oarlock.run.quick_dataclass import dataclass

_OUT_OF_TIME = 124  # the exit code at limits.runtime, the same as that of `timeout`


class Verdict(NamedTuple):
    """How a run ends, for its `end` event and its exit code."""

    state: str
    code: int
    reason: str = ""


@dataclass(frozen=True)
class Restart:
    """Form another generation. These are the fields of the `restart` event."""

    left: int
    forgiven: bool
    fields: dict[str, Any]


@dataclass(frozen=True)
class Fail:
    """End the run. These are the fields of the `end` event."""

    code: int
    reason: str
    fields: dict[str, Any]


Aftermath = Union[Restart, Fail]


def out_of_time(limit: float) -> Verdict:
    """The verdict of a run that has reached limits.runtime."""
    return Verdict("failed", _OUT_OF_TIME, f"limits.runtime of {limit:g} s is over")


def stalled(limit: float | None) -> str:
    """The reason for ending a generation that has reached limits.stall."""
    return f"no task reported a step for limits.stall ({limit or 0:g} s)"


def no_machine(limit: float, missing: str) -> Verdict:
    """The verdict if these tasks found no machine within limits.rendezvous."""
    reason = f"after limits.rendezvous ({limit:g} s) there is still no machine for {missing}"
    return Verdict("failed", 1, reason)


def failed_beside(generation: Generation) -> str:
    """Name the trainers that failed in a generation whose leader task ended with 0, or return an empty text.

    A trainer that the host had to end does not count: it has no way to know that the work is done.
    """
    failed = [
        outcome
        for outcome in generation.outcomes.values()
        if outcome.code and not outcome.ours and generation.task(outcome.name).is_trainer
    ]
    if not failed:
        return ""
    first = culprit.find(failed) or failed[0]
    names = ", ".join(outcome.name for outcome in failed)
    return f"but {names} failed: {failure_fields.describe(first)['reason']}"


def after_generation(
    generation: Generation, budget: Budget, reports: bool, now: float, time: float
) -> Aftermath:
    """Name the culprit and charge the budget, unless the end is no failure."""
    if generation.is_forgiven:
        return Restart(budget.left, True, {"reason": generation.blame} if generation.blame else {})
    guilty = culprit.find(generation.outcomes.values())
    fields = failure_fields.describe(guilty) if guilty else {}
    if generation.blame:
        fields["reason"] = generation.blame
    refusal = generation.refusal or culprit.refusal(guilty)
    refusal = refusal or budget.refuses(generation.loss(guilty, reports, now, time))
    if refusal is None:
        return Restart(budget.left, False, {**fields, **budget.event_fields})
    reason = fields.pop("reason", "")
    return Fail(failure_fields.exit_code(guilty), reason, {"refusal": refusal, **fields})
