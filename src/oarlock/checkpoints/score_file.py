"""An evaluator's scores of checkpoints: `.scores.json` in their folder.

The leading agent writes it as scores arrive. A later launch of the evaluator reads which checkpoints are
already scored, and the training process's writer reads which one is the best. A score belongs to one
checkpoint, not to a name: another run may use the folder and save under the same name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oarlock.checkpoints.store import Checkpoint, Store
from oarlock.system.atomic_file import write_whole

FILE_NAME = ".scores.json"
Metrics = Mapping[str, Any]


@dataclass(frozen=True)
class Scores:
    """The scores of the checkpoints in one folder."""

    scored: Mapping[str, tuple[float, Metrics]] = field(default_factory=dict)  # name -> when saved, metrics
    is_followed: bool = False  # an evaluator is running and will score the rest

    def of(self, checkpoint: Checkpoint) -> Metrics | None:
        """The metrics of a checkpoint; None if it is not scored."""
        saved, metrics = self.scored.get(checkpoint.name, (None, None))
        return metrics if saved == _saved(checkpoint) else None

    def names(self, checkpoints: Sequence[Checkpoint]) -> list[str]:
        """The names of those that are scored."""
        return [checkpoint.name for checkpoint in checkpoints if self.of(checkpoint) is not None]


def read(folder: Path) -> Scores:
    """The scores in a folder; none if the file is missing or makes no sense."""
    try:
        data = json.loads((folder / FILE_NAME).read_bytes())
        scored = {
            str(name): (float(entry["saved"]), dict(entry["metrics"]))
            for name, entry in data["scored"].items()
        }
        return Scores(scored, data.get("followed") is True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Scores()


def set_followed(folder: Path, is_followed: bool) -> None:
    """Record whether an evaluator is running. Raises OSError."""
    before = read(folder)
    if before.is_followed != is_followed:
        _write(folder, Scores(before.scored, is_followed))


def add(folder: Path, name: str, metrics: Metrics) -> None:
    """Record a score, and drop those of deleted checkpoints. Raises OSError."""
    before, here = read(folder), {one.name: one for one in Store(folder).checkpoints()}
    scored = {known: entry for known, entry in before.scored.items() if known in here}
    if name in here:
        known = before.of(here[name]) or {}
        scored[name] = (_saved(here[name]), {**known, **metrics})
    _write(folder, Scores(scored, before.is_followed))


def _saved(checkpoint: Checkpoint) -> float:
    when = checkpoint.manifest.get("saved")
    return float(when) if isinstance(when, (int, float)) else 0.0


def _write(folder: Path, scores: Scores) -> None:
    entries = {name: {"saved": saved, "metrics": metrics} for name, (saved, metrics) in scores.scored.items()}
    write_whole(folder / FILE_NAME, json.dumps({"scored": entries, "followed": scores.is_followed}).encode())
