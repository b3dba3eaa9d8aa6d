"""Reports that a program did not write itself: what hooks saw. Pure; travels into pods.

Such a report names its source in `observed`. The training loops of a few libraries know their step in the
whole training, in every generation, and when they begin and end: their reports count like the program's own.
Any other source only counts what this process has done so far (a progress bar may be that of a preparation),
so it is displayed and has no other effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOOPS = frozenset({"keras", "lightning", "transformers"})
COUNTERS = frozenset({"accelerate", "tqdm"})


def source_of(report: Mapping[str, Any]) -> str | None:
    """Which hook saw it; None if the program reported it itself."""
    source = report.get("observed")
    return source if isinstance(source, str) else None


def knows_its_step(source: str | None) -> bool:
    """Whether this source knows the step of the training, and not only what a process has done."""
    return source is None or source in LOOPS


def expects_more(report: Mapping[str, Any]) -> bool:
    """Whether the reporting training loop continues: its next report is due within limits.stall."""
    return report.get("more") is not False
