"""Which checkpoints to keep: the newest few, every n-th step, and the best by a metric. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock.checkpoints.store import Checkpoint


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

    def expired(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Those of all checkpoints, given oldest first, that may be deleted."""
        kept = {checkpoint.name for checkpoint in checkpoints[-self.keep :]}
        if self.every is not None:
            kept |= {checkpoint.name for checkpoint in checkpoints if checkpoint.step % self.every == 0}
        if self.best is not None and checkpoints:
            kept.add(min(checkpoints, key=self._badness).name)
        return [checkpoint for checkpoint in checkpoints if checkpoint.name not in kept]

    def _badness(self, checkpoint: Checkpoint) -> tuple[float, int]:
        """Of two equally good checkpoints the newer is kept; one without the metric is the worst."""
        order, _, metric = str(self.best).rpartition(":")
        value = checkpoint.manifest["metrics"].get(metric)
        if not isinstance(value, (int, float)) or math.isnan(value):
            return math.inf, -checkpoint.step
        return (-value if order == "max" else value), -checkpoint.step
