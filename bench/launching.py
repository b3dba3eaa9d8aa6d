"""Launch to first step: start it, wait for rank 0's mark, let it end. Shared by two scripts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from arena import Arena, arena
from question import progress


def alternate(sides: Mapping[str, Callable[[Arena], None]], repeats: int) -> dict[str, list[float]]:
    """Seconds to the first step, of each side in turns: what slows the machine slows them all."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats):
        for name, start in sides.items():
            progress(f"launch {turn + 1} of {repeats}: {name}")
            taken[name].append(_to_first_step(start))
    return taken


def _to_first_step(start: Callable[[Arena], None]) -> float:
    with arena() as place:
        began = time.time()
        start(place)
        place.wait(lambda: place.marks("first"), "first step")
        place.finish()
        return float(place.marks("first")[0].split()[0]) - began
