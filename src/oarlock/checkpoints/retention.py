"""Which checkpoints stay: the newest few, every so many steps, and the best by a metric. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock.checkpoints.store import Checkpoint


@dataclass(frozen=True)
class Retention:
    keep: int = 3  # the newest so many
    every: int | None = None  # and those whose step is a multiple of it
    best: str | None = None  # and the one with the least `loss`, or with the greatest `max:accuracy`

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError(f"keep={self.keep}: at least one checkpoint has to stay")
        if self.every is not None and self.every < 1:
            raise ValueError(f"keep_every={self.every}: every so many steps, at least 1")

    def expired(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Of all there are, oldest first, those that may go."""
        staying = {one.name for one in checkpoints[-self.keep :]}
        if self.every is not None:
            staying |= {one.name for one in checkpoints if one.step % self.every == 0}
        if self.best is not None and checkpoints:
            staying.add(min(checkpoints, key=self._badness).name)
        return [one for one in checkpoints if one.name not in staying]

    def _badness(self, checkpoint: Checkpoint) -> tuple[float, int]:
        """Of two equally good ones the newer stays; one without the metric is the worst."""
        order, _, metric = str(self.best).rpartition(":")
        value = checkpoint.manifest["metrics"].get(metric)
        if not isinstance(value, (int, float)) or math.isnan(value):
            return math.inf, -checkpoint.step
        return (-value if order == "max" else value), -checkpoint.step
