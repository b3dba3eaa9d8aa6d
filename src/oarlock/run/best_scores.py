"""The scores of checkpoints: the latest and the best of each metric, with their steps. Pure; travels.

A score is what an evaluator reports about a checkpoint. `generation` says which checkpoint: two generations
may save the same step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oarlock.run.typed import is_number

# For a metric with one of these words in its name, less is better. For all others, more is.
_LESS_IS_BETTER = re.compile(
    "(^|[^a-z])(loss|errors?|err|mse|rmse|mae|mape|perplexity|ppl|nll|[wc]er|fid|(cross)?entropy)($|[^a-z])"
)

_NO_METRICS = ("t", "kind", "task", "step", "generation", "busy")  # fields of a report


@dataclass
class Score:
    """The scores of one metric."""

    latest: float
    latest_step: int
    best: float
    best_step: int


def role_of(task: str) -> str:
    """The role in a task's name."""
    return task.rpartition("-")[0]


def is_score(report: Mapping[str, Any]) -> bool:
    """Whether a report is about a checkpoint, and not about the progress of its own task."""
    return role_of(str(report.get("task", ""))) == "evaluator" and report.get("step") is not None


def of_checkpoint(report: Mapping[str, Any]) -> bool:
    """Whether it names the checkpoint, as `State.follow` does. Then it is kept, however recent the last."""
    return is_score(report) and report.get("generation") is not None


def metrics_of(score: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics in a score, by name."""
    return {name: value for name, value in score.items() if name not in _NO_METRICS}


def less_is_better(metric: str) -> bool:
    """Whether the lowest value of this metric is the best."""
    return _LESS_IS_BETTER.search(metric.lower()) is not None


def add(scores: dict[str, Score], metric: str, value: Any, step: int, is_late: bool = False) -> None:
    """Add a score. Values that are not finite numbers do not count, and a late score of an earlier step is
    not the latest."""
    if not is_number(value):
        return
    known = scores.get(metric)
    if known is None:
        scores[metric] = Score(value, step, value, step)
        return
    if value < known.best if less_is_better(metric) else value > known.best:
        known.best, known.best_step = value, step
    if not is_late or step >= known.latest_step:
        known.latest, known.latest_step = value, step
