"""The checkpoints that a user asks to score: the newest, the one of a step, or all that were kept."""

from __future__ import annotations

from pathlib import Path

from oarlock.agent.score.score_error import ScoreError
from oarlock.checkpoints.store import Checkpoint, Store, verify


def choose(run: str, folder: Path, step: int | None, everything: bool) -> list[Checkpoint]:
    """Return the checkpoints to score, oldest first. If two have the same step, the newer one counts.

    Raises ScoreError if there are none, or one of them is damaged.
    """
    found = {one.step: one for one in Store(folder).checkpoints()}
    if not found:
        raise ScoreError(f"{run} has no checkpoints yet")
    if step is not None and step not in found:
        kept = ", ".join(map(str, sorted(found)))
        raise ScoreError(f"{run} has no checkpoint of step {step}; it has {kept}")
    chosen = list(found.values()) if everything else [found[max(found) if step is None else step]]
    for checkpoint in chosen:
        if (trouble := verify(checkpoint)) is not None:
            raise ScoreError(f"{checkpoint.name} of {run} is not whole: {trouble}")
    return chosen
