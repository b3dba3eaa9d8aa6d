"""How fast are records of TFRecord files read, and how soon after a resume? Against tf.data.

    .venv/bin/python bench/shards.py [--repeats N] [--json]

Ours: `oarlock.data.Shards`, batch by batch, every record by its place. The peer: `tf.data.TFRecordDataset`
over the same files, batched and prefetched; shuffled it interleaves the files and has a buffer of as many
records as a window of ours. Both hand over bytes, neither decodes. Resumed at nine tenths of an epoch, the
peer has to skip what was read before. All from the page cache, in turns.
"""

from __future__ import annotations

import random
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from question import Question, Row, Target, main, progress

from oarlock.training.data import Shards
from oarlock.training.data.near_order import WINDOW

_BATCH = 128
_FILES = 8


@dataclass(frozen=True)
class Kind:
    """A dataset: what its records could be, their size and number."""

    name: str
    size: int
    count: int


_KINDS = (
    Kind("rows of 200 B", 200, 100_000),
    Kind("small images of 10 kB", 10_000, 20_000),
    Kind("photographs of 100 kB", 100_000, 3_000),
)


def measure(repeats: int) -> list[Row]:
    return [row for kind in _KINDS for row in _rows(kind, repeats)]


def _rows(kind: Kind, repeats: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        pattern = _written(Path(folder), kind)
        late = kind.count // _BATCH * 9 // 10
        return [
            _epoch(kind, repeats, pattern, shuffle=False),
            _epoch(kind, repeats, pattern, shuffle=True),
            _row(
                f"{kind.name}: the first batch at nine tenths of an epoch, shuffled",
                "ms",
                [
                    lambda: 1000 * _until_first(_ours(pattern, True, late)),
                    lambda: 1000 * _until_first(_peer(pattern, True).skip(late)),
                ],
                repeats,
                Target(1),
            ),
        ]


def _epoch(kind: Kind, repeats: int, pattern: str, shuffle: bool) -> Row:
    what = f"{kind.name}, {'shuffled' if shuffle else 'in order'}"
    sides = [
        lambda: _per_second(_ours(pattern, shuffle), kind.count),
        lambda: _per_second(_peer(pattern, shuffle), kind.count),
    ]
    return _row(what, "records/s", sides, repeats, None)


def _row(what: str, unit: str, sides: list[Callable[[], float]], repeats: int, target: Target | None) -> Row:
    ours: list[float] = []
    peer: list[float] = []
    for turn in range(repeats):
        progress(f"shards, {what}, turn {turn + 1} of {repeats}")
        for side, figures in zip(sides, (ours, peer)):
            figures.append(side())
    return Row(what, unit, ours, peer, against="tf.data", target=target)


def _written(folder: Path, kind: Kind) -> str:
    """The files, by TensorFlow's own writer."""
    import tensorflow as tf

    chance = random.Random(1)
    for number in range(_FILES):
        with tf.io.TFRecordWriter(str(folder / f"train-{number:05d}")) as writer:
            for place in range(kind.count // _FILES):
                writer.write(struct.pack("<QQ", number, place) + chance.randbytes(kind.size - 16))
    pattern = str(folder / "train-*")
    Shards(pattern, _BATCH)  # so that the index is there, as from the second start of a program on
    return pattern


def _ours(pattern: str, shuffle: bool, step: int = 0) -> Any:
    shards = Shards(pattern, _BATCH, shuffle=shuffle)
    read = shards.read
    return ([read(*place) for place in places] for _, places in shards.from_step(step, epochs=1))


def _peer(pattern: str, shuffle: bool) -> Any:
    import tensorflow as tf

    files = tf.data.Dataset.list_files(pattern, shuffle=shuffle, seed=1)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=_FILES if shuffle else 1)
    if shuffle:
        records = records.shuffle(WINDOW, seed=1)
    return records.batch(_BATCH, drop_remainder=True).prefetch(2)


def _per_second(batches: Any, count: int) -> float:
    began = time.perf_counter()
    found = sum(len(batch) for batch in batches)
    assert found == count // _BATCH * _BATCH
    return found / (time.perf_counter() - began)


def _until_first(batches: Any) -> float:
    began = time.perf_counter()
    next(iter(batches))
    return time.perf_counter() - began


QUESTION = Question("shards", "Reading TFRecord files", measure, repeats=5)

if __name__ == "__main__":
    main([QUESTION], __doc__)
