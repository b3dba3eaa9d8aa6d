"""Which checkpoints to keep: the newest few, every Nth step, and the best by a metric. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oarlock.checkpoints.store import Checkpoint

_UNSCORED = 5  # checkpoints that wait for the evaluator, even if `keep` is lower: it may be slow, or stuck


@dataclass(frozen=True)
class Retention:
    """A rule for keeping checkpoints."""

    keep: int = 3  # the newest `keep`
    every: int | None = None  # and those whose step is a multiple of `every`
    best: str | None = None  # and the one with the lowest "loss", or with the highest "max:accuracy"

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError(f"keep={self.keep}: at least one checkpoint must be kept")
        if self.every is not None and self.every < 1:
            raise ValueError(f"keep_every={self.every}: a number of steps, at least 1")

    def expired(
        self,
        checkpoints: Sequence[Checkpoint],
        scored: Mapping[str, Mapping[str, Any]] | None = None,
        is_followed: bool = False,
    ) -> list[Checkpoint]:
        """The checkpoints, of those given oldest first, that may be deleted. `scored`: an evaluator's results
        for some of them, by name; `is_followed`: it is still scoring the others."""
        scored = scored or {}
        kept = {checkpoint.name for checkpoint in checkpoints[-self.keep :]}
        if self.every is not None:
            kept |= {checkpoint.name for checkpoint in checkpoints if checkpoint.step % self.every == 0}
        if self.best is not None and checkpoints:
            kept.add(self._best(checkpoints, scored).name)
            unscored = [checkpoint.name for checkpoint in checkpoints if checkpoint.name not in scored]
            kept.update(unscored[:_UNSCORED] if is_followed else [])
        return [checkpoint for checkpoint in checkpoints if checkpoint.name not in kept]

    def _best(self, checkpoints: Sequence[Checkpoint], scored: Mapping[str, Mapping[str, Any]]) -> Checkpoint:
        """By the evaluator's values once it reports the metric: training's own come from other examples and
        cannot be compared. Of two equally good checkpoints, the newer is kept; one without the metric counts
        as the worst."""
        order, _, metric = str(self.best).rpartition(":")
        is_evaluators = any(metric in metrics for metrics in scored.values())

        def badness(checkpoint: Checkpoint) -> tuple[float, int]:
            metrics = scored.get(checkpoint.name, {}) if is_evaluators else checkpoint.manifest["metrics"]
            value = metrics.get(metric)
            if not isinstance(value, (int, float)) or math.isnan(value):
                return math.inf, -checkpoint.step
            return (-value if order == "max" else value), -checkpoint.step

        return min(checkpoints, key=badness)
