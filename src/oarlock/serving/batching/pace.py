"""How fast a model is, learned from its batches: how many rows to run at once, and how long a queue takes.

Times are kept for sizes that are powers of two. A slow batch counts little: it may be the first of its size,
or another process may have had the CPU. Pure.
"""

from __future__ import annotations

_FASTER, _SLOWER = 0.5, 0.1  # the weight of a batch that is faster, or slower, than the known time
_GOOD = 0.95  # of the best rate: a smaller batch that reaches it is preferred because it answers sooner
_LOOK = 64  # batches at the limit before a larger one is tried again


class Pace:
    """The time of one model's batches, of 1 row to `most` rows. One thread notes; any thread may read."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._seconds: dict[int, float] = {}  # size -> seconds per row in a batch of that size
        self._limit = most
        self._at_limit = 0

    def note(self, rows: int, seconds: float) -> None:
        """Learn from a batch."""
        size, each = _size(rows), seconds / max(rows, 1)
        known = self._seconds.get(size)
        if known is not None:
            weight = _FASTER if each < known else _SLOWER
            each = known + weight * (each - known)
        self._seconds = {**self._seconds, size: each}  # a new dict: another thread may be reading the old one
        best = min(self._seconds.values())
        good = [size for size, one in self._seconds.items() if one * _GOOD <= best]
        largest = max(self._seconds)
        # Sizes larger than any measured one may be better still.
        is_open = largest in good and largest < _size(self.most)
        smallest = min(good)
        self._limit = self.most if is_open or smallest == _size(self.most) else smallest

    def rows(self, waiting: int) -> int:
        """The number of rows that the next batch may have."""
        if waiting <= self._limit:
            return self._limit
        self._at_limit += 1
        return self.most if self._at_limit % _LOOK == 0 else self._limit

    def seconds(self, rows: int) -> float:
        """The seconds that `rows` waiting rows take, as far as known; 0 before the first batch."""
        known, limit = self._seconds, self._limit
        if not known or rows <= 0:
            return 0.0
        size = _size(min(rows, limit))
        each = known.get(size)
        if each is None:
            bits = size.bit_length()
            each = known[min(known, key=lambda one: (abs(one.bit_length() - bits), -one))]
        return rows * each


def _size(rows: int) -> int:
    """The largest power of two that is at most `rows`."""
    return 1 << (max(rows, 1).bit_length() - 1)
