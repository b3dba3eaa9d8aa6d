"""An order of an epoch's examples that reads files in stretches: well mixed, yet fast on disks.

The examples, starting at a different place in each epoch, are split into blocks of 64 neighbors. The blocks
are permuted, and then the examples within every 256 blocks. So a stretch of 16,384 examples comes from 256
places across the whole dataset, and each place is read in one go. As in `order`, nothing is built, and
changing it would change every resumed run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from oarlock.training.data.order import shuffled

BLOCK = 64  # examples
WINDOW = 256 * BLOCK


def shuffled_near(places: Sequence[int], count: int, seed: int, epoch: int) -> list[int]:
    """The examples at these positions of the epoch. `places` is ascending."""
    mixed = [place for window in _windows(places) for place in _mixed(window, count, seed, epoch)]
    whole = count // BLOCK  # the remainder is the last block, wherever the epoch begins
    blocks = [place // BLOCK for place in mixed]
    moved = shuffled([block for block in blocks if block < whole], whole, _derived(seed, "blocks"), epoch)
    rest = iter(moved)
    start = _derived(seed, f"start {epoch}") % count
    return [
        ((next(rest) if block < whole else block) * BLOCK + place % BLOCK + start) % count
        for block, place in zip(blocks, mixed)
    ]


def _windows(places: Sequence[int]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for place in places:
        found.setdefault(place // WINDOW, []).append(place)
    return list(found.values())


def _mixed(places: list[int], count: int, seed: int, epoch: int) -> list[int]:
    """Places of one window, permuted within it."""
    number = places[0] // WINDOW
    first = number * WINDOW
    size = min(WINDOW, count - first)
    within = shuffled([place - first for place in places], size, _derived(seed, f"window {number}"), epoch)
    return [first + place for place in within]


def _derived(seed: int, what: str) -> int:
    return int.from_bytes(hashlib.sha256(f"oarlock shards {seed} {what}".encode()).digest()[:8], "big")
