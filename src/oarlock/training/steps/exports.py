"""Exports during training: the program's own function, at chosen checkpoints and after the last step.

All ranks call it before the same step: if all workers must save together, each takes
part.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any


class Exports:
    """Calls `export` at every `every`-th step; without `every`, whenever a checkpoint is saved."""

    def __init__(self, export: Callable[[], Any] | None = None, every: int | None = None) -> None:
        if every is not None and export is None:
            raise ValueError("export_every says when to export: pass export=, the function that does it")
        if every is not None and every < 1:
            raise ValueError(f"export_every={every}: a number of steps, at least 1")
        self._export = export
        self._every = every
        self._exported = -1  # the step of the last call

    def is_due(self, step: int) -> bool:
        """Whether this step is one of the chosen ones: then a checkpoint is saved, too."""
        return self._every is not None and step % self._every == 0

    def after_save(self, step: int) -> str | None:
        """Export if this checkpoint calls for it. A failure does not end training: returns what to say."""
        if self._export is None or not (self._every is None or self.is_due(step)):
            return None
        self._exported = step
        try:
            self._export()
        except Exception as error:
            self._exported = -1
            why = textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")
            return f"the export at step {step} failed, and the training continues: {why}"
        return None

    def at_end(self, step: int) -> None:
        """Export the trained model, unless that was just done. Raises what the function raises: a run without
        its model has not succeeded."""
        if self._export is not None and self._exported != step:
            self._export()
            self._exported = step
