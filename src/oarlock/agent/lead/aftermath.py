"""What follows a generation that ended before its work was done: another one, or the end of the run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

from oarlock.agent.lead import culprit
from oarlock.agent.lead.generation import Generation
from oarlock.agent.lead.restart_budget import Budget


@dataclass(frozen=True)
class Restart:
    """Form another generation. The fields are those of the `restart` event."""

    left: int
    forgiven: bool
    fields: dict[str, Any]


@dataclass(frozen=True)
class Fail:
    """End the run. The fields are those of the `end` event."""

    code: int
    reason: str
    fields: dict[str, Any]


Aftermath = Union[Restart, Fail]


def after_generation(
    generation: Generation, budget: Budget, reports: bool, now: float, time: float
) -> Aftermath:
    """Name the culprit and charge the budget, unless the end is no failure."""
    if generation.is_forgiven:
        return Restart(budget.left, True, {"reason": generation.blame} if generation.blame else {})
    guilty = culprit.find(generation.outcomes.values())
    fields = culprit.describe(guilty) if guilty else {}
    if generation.blame:
        fields["reason"] = generation.blame
    refusal = generation.refusal or culprit.refusal(guilty)
    refusal = refusal or budget.refuses(generation.loss(guilty, reports, now, time))
    if refusal is None:
        return Restart(budget.left, False, fields)
    reason = fields.pop("reason", "")
    return Fail(culprit.exit_code(guilty), reason, {"refusal": refusal, **fields})
