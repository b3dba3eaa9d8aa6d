"""The checkpoints that an evaluator has not scored yet, in the order of their steps, until training ends.

The folder is training's own, or one that the agent fills (`agent/snapshots/evaluator_feed.py`). The leading
agent says what was scored before this process started, so a restart misses nothing and repeats at most the
checkpoint that was being scored. A checkpoint that retention deletes before its turn is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oarlock.checkpoints.initial_weights import NAME as BORROWED
from oarlock.checkpoints.store import Checkpoint, Store, verify_to_restore
from oarlock.system.polling import wait_for
from oarlock.training.task import channel
from oarlock.training.task.context import Context

ONLY, SCORED = "OARLOCK_EVALUATE", "OARLOCK_SCORED"  # variables: the names to score, and those already scored
_LOOK = 0.25  # seconds between two looks at the folder
_END = "end"
_PATIENCE = 30.0  # seconds for an agent to take a score


class NewCheckpoints:
    """Waits for checkpoints, and reports their scores."""

    def __init__(self, task: Context, folder: Path) -> None:
        self._store = Store(folder)
        only = os.environ.get(ONLY)
        self._only = None if only is None else only.split()
        self._done = set(os.environ.get(SCORED, "").split())
        self._is_fed = task.is_launched and self._only is None
        if self._is_fed:
            channel.send({"kind": "follow"})

    def __iter__(self) -> Iterator[Checkpoint | str]:
        """Every whole checkpoint; for a damaged one, what is wrong with it."""
        while True:
            name = wait_for(self._look, "new checkpoint", None, every=_LOOK)
            if name is None or name == _END:
                return
            self._done.add(name)
            path = self._store.folder / name
            found = self._store.read(path)
            trouble = found if isinstance(found, str) else verify_to_restore(found)
            if trouble is None:
                yield found
            elif path.exists():  # else it was deleted in the meantime
                yield f"skipped {name}, which is not whole: {trouble}"

    def score(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        """Report the evaluator's score. A checkpoint counts as scored once the agent has it."""
        report = {"step": checkpoint.step, "generation": checkpoint.generation}
        channel.send({**metrics, **report, "kind": "report"}, patience=_PATIENCE)

    def _look(self) -> str | None:
        """The name of the next checkpoint, `_END`, or None while there is neither."""
        # Asked before looking: whatever was committed before training ended, or was on its way here, is
        # then in the folder.
        is_over = not self._is_fed or channel.requested("stop")
        for name in reversed(self._store.names()):
            is_wanted = name != BORROWED if self._only is None else name in self._only
            if is_wanted and name not in self._done:
                return name
        return _END if is_over else None
