"""Reports that a program did not write itself: what hooks saw of it. Pure; travels into pods.

Such a report names its source in `observed`. The training loops of a few libraries know at which step of the
whole training they are, in every generation, and when they begin and end: their reports count like the
program's own. Everything else only counts what this process has done so far (a progress bar may be that of
a preparation), so it is shown and nothing follows from it.
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
    """Whether this source says how far the training is, and not only what a process has done."""
    return source is None or source in LOOPS


def expects_more(report: Mapping[str, Any]) -> bool:
    """Whether the training loop that reports goes on: its next report is due within limits.stall."""
    return report.get("more") is not False
