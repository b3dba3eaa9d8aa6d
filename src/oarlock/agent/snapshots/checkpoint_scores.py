"""The leading agent's view of checkpoints and their scores, in the folder where the leader task saves.

A folder that cannot be written costs a line in the record, but never the training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oarlock.agent.snapshots.transfer import MOST
from oarlock.checkpoints import score_file
from oarlock.checkpoints.store import Store


class CheckpointScores:
    """The checkpoints in one folder, and their scores. `note` gets the first trouble."""

    def __init__(self, folder: str, note: Callable[[str], None]) -> None:
        self._store = Store(folder) if folder and "://" not in folder else None
        self._note = note
        self._is_noted = False

    def names(self) -> list[str]:
        """The checkpoints to resume from, newest first."""
        return [] if self._store is None else self._store.names()[:MOST]

    def scored(self) -> list[str]:
        """The checkpoints that an evaluator has scored."""
        if self._store is None:
            return []
        return score_file.read(self._store.folder).names(self._store.checkpoints())

    def keep_score(self, name: str, metrics: Mapping[str, Any]) -> None:
        """Note the score of a checkpoint."""
        self._try(lambda folder: score_file.add(folder, name, metrics))

    def set_followed(self, is_followed: bool) -> None:
        """Note whether an evaluator is at work."""
        self._try(lambda folder: score_file.set_followed(folder, is_followed))

    def _try(self, change: Callable[[Path], None]) -> None:
        if self._store is None:
            return
        try:
            change(self._store.folder)
        except OSError as error:
            if not self._is_noted:
                self._note(f"scores cannot be kept in {self._store.folder}: {error.strerror or error}")
            self._is_noted = True
