"""Which task's failure ended a generation, and whether two failures are the same. Pure.

When one member dies the others fail within milliseconds, complaining about their peers. The culprit is the
task that a signal killed (its peers raise, it could not), otherwise the first that failed. SIGABRT does not
count as a signal: JAX and TensorFlow use it to give up on a lost peer.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

from oarlock.agent.protocol.failure_fields import exit_code
from oarlock.agent.protocol.outcome import Outcome
from oarlock.run.contract import NO_INPUT


def find(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Find the task to blame. Returns None if no task failed."""
    failed = [outcome for outcome in outcomes if outcome.failed_at is not None]
    return min(failed, key=_guilt, default=None)


def refusal(outcome: Outcome | None) -> str | None:
    """Why a restart is certain to meet the same failure; None if it is not."""
    if outcome is None or outcome.error is None or outcome.error.get("type") != NO_INPUT:
        return None
    return "it would find no input again"


def signature(outcome: Outcome) -> str:
    """A text that is equal for two failures of the same kind."""
    if is_exhausted(outcome):
        return "memory"  # the sizes may differ, and the line: another try may get a little further
    error = outcome.error or {}
    return f"{error.get('type')}|{error.get('message')}|{error.get('where')}|{exit_code(outcome)}"


def is_exhausted(outcome: Outcome | None) -> bool:
    """Whether the task ran out of GPU memory."""
    return outcome is not None and outcome.trouble == "memory"


def _guilt(outcome: Outcome) -> tuple[bool, bool, float]:
    """A sort key: the lowest is the culprit. NCCL complains about other ranks, so its errors come last."""
    return not _was_killed(outcome), outcome.trouble == "peer", outcome.failed_at or 0.0


def _was_killed(outcome: Outcome) -> bool:
    return not outcome.ours and outcome.signal is not None and outcome.signal != signal.SIGABRT
