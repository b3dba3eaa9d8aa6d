"""The interface of a place that holds checkpoints: a folder here, a claim, a bucket. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from oarlock.engines.shared.checkpoint_folder import Entry


class CheckpointPlace(Protocol):
    """A place that holds checkpoints. Every method raises OarlockError if it cannot be reached."""

    def entries(self, verifies: bool) -> list[Entry]:
        """List all checkpoints, newest first; `verifies` reads every byte."""

    def newest(self) -> str | None:
        """Return the name of the newest whole checkpoint."""

    def delete(self, names: Sequence[str]) -> int:
        """Delete checkpoints and return the number of bytes freed."""


class CheckpointFolder(CheckpointPlace, Protocol):
    """A folder of checkpoints, to which only one run at a time may add."""

    def fence(self) -> tuple[str, int] | None:
        """Return the run, and its generation, that may add checkpoints now."""
