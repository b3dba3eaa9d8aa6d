"""Launch to first step: start it, wait for rank 0's mark, let it end. Shared by two scripts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from arena import Arena, arena
from question import progress

KEPT = ("--warm", "10m")
SECOND = "`--warm 10m`, from the second run on"


def alternate(
    sides: Mapping[str, Callable[[Arena], None]], repeats: int, again: Collection[str] = ()
) -> dict[str, list[float]]:
    """Seconds to the first step, of each side in turns: what slows the machine slows them all. Of those in
    `again` it is the second launch in the same place that counts."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats):
        for name, start in sides.items():
            progress(f"launch {turn + 1} of {repeats}: {name}")
            taken[name].append(_to_first_step(start, 2 if name in again else 1))
    return taken


def _to_first_step(start: Callable[[Arena], None], launches: int) -> float:
    """Of the last launch."""
    with arena() as place:
        for number in range(launches):
            began = time.time()
            start(place)
            place.wait(partial(_has_begun, place, number), "first step")
            place.finish()
        return float(place.marks("first")[-1].split()[0]) - began


def _has_begun(place: Arena, launches_before: int) -> bool:
    return len(place.marks("first")) > launches_before
