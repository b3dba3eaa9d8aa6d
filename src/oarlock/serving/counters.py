"""Counts and times of all replicas, in shared memory: each replica writes its own block, any reads them all.

A block outlives its replica, and the next replica continues it, so that no count ever decreases. The memory
is anonymous: it is freed with the last process.
"""

from __future__ import annotations

import mmap
import struct
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_BLOCK = 1 << 16  # bytes per replica; unused pages cost nothing
_HEADER = 8  # bytes in use
_PREFIX = "oarlock_"
# Upper bounds: six for each power of ten from 0.1 ms to 100 s, and powers of two for everything else.
TIMES = tuple(
    round(step * 10.0**power, 10) for power in range(-4, 2) for step in (1, 1.5, 2.2, 3.3, 4.7, 6.8)
)
SIZES = tuple(float(1 << power) for power in range(13))
HELP = {
    "requests_total": "Requests, by dialect and status code.",
    "request_seconds": "From the whole request to the whole answer.",
    "model_seconds": "Time of the model for one batch.",
    "wait_seconds": "How long a request waited for the model.",
    "batch_rows": "Rows of one batch.",
    "rows_total": "Rows computed, by version.",
    "tokens_total": "Tokens that a text model has written, by version.",
    "queue_rows": "Rows that wait now.",
    "refused_total": "Requests refused because too many waited.",
    "dropped_total": "Requests dropped before they were computed: their clients had gone or were late.",
    "restarts_total": "Replicas that died and were restarted.",
}


@dataclass(frozen=True)
class Key:
    """The name of a metric and its labels, as Prometheus writes them."""

    kind: str  # counter, gauge or histogram
    name: str
    labels: str  # a="1",b="2"


class Blocks:
    """The shared memory, created before the first fork."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._memory = mmap.mmap(-1, count * _BLOCK)

    def counters(self, block: int) -> Counters:
        """Return the counters of the replica that owns this block."""
        return Counters(self, block)

    def sums(self) -> dict[Key, list[float]]:
        """Add up what all replicas have written."""
        found: dict[Key, list[float]] = {}
        for block in range(self.count):
            for key, offset, size in self.entries(block):
                values = struct.unpack_from(f"{size}d", self._memory, offset)
                known = found.get(key)
                found[key] = list(values) if known is None else [a + b for a, b in zip(known, values)]
        return found

    def entries(self, block: int) -> Iterator[tuple[Key, int, int]]:
        """Yield each metric of a block: its key, where its values begin and how many there are."""
        at, begin = _HEADER, block * _BLOCK
        used = struct.unpack_from("Q", self._memory, begin)[0]
        while at < used:
            length, size = struct.unpack_from("II", self._memory, begin + at)
            text = self._memory[begin + at + 8 : begin + at + 8 + length].decode()
            values = at + 8 + _rounded(length)
            kind, name, labels = text.split("\n", 2)
            yield Key(kind, name, labels), begin + values, size
            at = values + 8 * size

    def add_entry(self, block: int, key: Key, size: int) -> int | None:
        """Make room for a metric; return where its values begin, or None if the block is full."""
        begin = block * _BLOCK
        used: int = max(struct.unpack_from("Q", self._memory, begin)[0], _HEADER)
        text = f"{key.kind}\n{key.name}\n{key.labels}".encode()
        values = used + 8 + _rounded(len(text))
        end = values + 8 * size
        if end > _BLOCK:
            return None
        struct.pack_into("II", self._memory, begin + used, len(text), size)
        self._memory[begin + used + 8 : begin + used + 8 + len(text)] = text
        struct.pack_into("Q", self._memory, begin, end)  # last, so that a reader sees only whole entries
        return begin + values

    def values(self) -> memoryview[float]:
        """The whole memory as numbers. Each is 8 aligned bytes, so no reader sees half of one."""
        return memoryview(self._memory).cast("d")


class Counters:
    """What one replica counts. Any of its threads may call this."""

    def __init__(self, blocks: Blocks, block: int) -> None:
        self._blocks = blocks
        self._block = block
        self._values = blocks.values()
        self._lock = threading.Lock()
        self._places: dict[Key, int | None] = {}
        self._known: dict[tuple[object, ...], int | None] = {}
        for key, offset, _ in blocks.entries(block):
            self._places[key] = offset // 8
            if key.kind == "gauge":  # of the replica that had this block before
                self._values[offset // 8] = 0.0

    def add(self, name: str, value: float = 1, **labels: object) -> None:
        """Add to a count: `requests_total`, by labels such as code=200."""
        place = self._place("counter", name, 1, labels)
        if place is not None:
            with self._lock:
                self._values[place] += value

    def set(self, name: str, value: float, **labels: object) -> None:
        """Set a value that goes up and down, such as a queue length; the replicas' values are added up."""
        place = self._place("gauge", name, 1, labels)
        if place is not None:
            self._values[place] = value

    def observe(self, name: str, value: float, **labels: object) -> None:
        """Count a value into a histogram: of times if the name ends with `_seconds`, else of sizes."""
        bounds = bounds_of(name)
        place = self._place("histogram", name, len(bounds) + 2, labels)
        if place is not None:
            bucket = place + bisect_left(bounds, value)
            with self._lock:
                self._values[bucket] += 1
                self._values[place + len(bounds) + 1] += value

    def render(self) -> str:
        """Return the sums over all replicas in Prometheus's format."""
        return render(self._blocks.sums())

    def _place(self, kind: str, name: str, size: int, labels: Mapping[str, object]) -> int | None:
        short = (name, *labels.items())
        try:
            return self._known[short]
        except KeyError:
            key = Key(kind, name, ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items()))
        with self._lock:
            if key not in self._places:
                offset = self._blocks.add_entry(self._block, key, size)
                self._places[key] = None if offset is None else offset // 8
            self._known[short] = self._places[key]
        return self._known[short]


def bounds_of(name: str) -> tuple[float, ...]:
    """The upper bounds of a histogram's buckets; one more bucket holds what is above them."""
    return TIMES if name.endswith("_seconds") else SIZES


def quantile(name: str, counts: list[float], share: float) -> float | None:
    """The bound below which that share of a histogram's values lies; None if it has no values."""
    bounds = bounds_of(name)
    total = sum(counts[: len(bounds) + 1])
    seen = 0.0
    for bound, count in zip((*bounds, bounds[-1]), counts):
        seen += count
        if count and seen >= share * total:
            return bound
    return None


def render(sums: Mapping[Key, list[float]]) -> str:
    """Write metrics in Prometheus's format."""
    lines: list[str] = []
    last = ""
    for key in sorted(sums, key=lambda one: (one.name, one.labels)):
        name = _PREFIX + key.name
        if name != last:
            lines += [f"# HELP {name} {HELP[key.name]}"] if key.name in HELP else []
            lines += [f"# TYPE {name} {key.kind}"]
            last = name
        lines += (
            _histogram(name, key, sums[key]) if key.kind == "histogram" else [_line(name, key, sums[key][0])]
        )
    return "\n".join([*lines, ""])


def _histogram(name: str, key: Key, values: list[float]) -> Iterator[str]:
    bounds = bounds_of(key.name)
    total = 0.0
    comma = "," if key.labels else ""
    for bound, count in zip((*(f"{bound:g}" for bound in bounds), "+Inf"), values):
        total += count
        yield f'{name}_bucket{{{key.labels}{comma}le="{bound}"}} {total:.0f}'
    yield _line(f"{name}_sum", key, values[len(bounds) + 1])
    yield _line(f"{name}_count", key, total)


def _line(name: str, key: Key, value: float) -> str:
    labels = f"{{{key.labels}}}" if key.labels else ""
    return f"{name}{labels} {int(value) if value == int(value) else repr(value)}"


def _rounded(length: int) -> int:
    return -(-length // 8) * 8


def _escaped(value: object) -> str:
    return str(value)[:100].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
