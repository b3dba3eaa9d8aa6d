"""`oarlock.data.Shards`: a dataset in files, each with many examples, and which of them a step trains on."""

from __future__ import annotations

import glob
import itertools
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oarlock.training.data import tfrecord
from oarlock.training.data.batches import Batches
from oarlock.training.data.near_order import shuffled_near
from oarlock.training.data.tfrecord import Records

_MOST_OPEN = 256  # files
_AHEAD = 16  # steps


class Shards:
    """Examples in files, in batches of `global_batch`; `count` examples in all.

    `files`: paths, or a pattern such as "data/train-*", whose matches are sorted. `counts`: the number of
    examples in each file; without it the files are TFRecords, and their records are counted. The order is a
    function of seed, epoch and step, as with `Batches`, but reads stretches of files, which is fast on disks.
    `check`: verify the checksum of every record that is read, at about 100 MB/s.
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        global_batch: int,
        *,
        counts: Sequence[int] | None = None,
        seed: int = 0,
        shuffle: bool = True,
        check: bool = False,
    ) -> None:
        self.files: tuple[Path, ...] = _found(files)
        self._starts: dict[Path, array[int]] = {}
        if counts is None:
            self._starts = {path: tfrecord.index(path) for path in self.files}
            counts = [len(self._starts[path]) - 1 for path in self.files]
        if len(counts) != len(self.files) or any(number < 0 for number in counts):
            raise ValueError(f"counts has {len(counts)} numbers for {len(self.files)} files")
        self.counts: tuple[int, ...] = tuple(counts)
        self._ends = list(itertools.accumulate(self.counts))
        self.batches = Batches(self._ends[-1], global_batch, seed, shuffle)
        self._places = Batches(self._ends[-1], global_batch, shuffle=False)
        self._check = check
        self._open: dict[Path, Records] = {}

    @property
    def count(self) -> int:
        """The number of examples in all files."""
        return self.batches.count

    @property
    def steps_per_epoch(self) -> int:
        """The number of full batches in an epoch."""
        return self.batches.steps_per_epoch

    def mine(self, step: int, *, rank: int | None = None, world: int | None = None) -> list[tuple[Path, int]]:
        """This worker's examples in `step`, as (file, number in that file). The slices of all ranks, in
        order, make up the batch."""
        return self._located(step, self._places.mine(step, rank=rank, world=world))

    def all(self, step: int) -> list[tuple[Path, int]]:
        """All examples in the global batch of `step`."""
        return self._located(step, self._places.indices(step))

    def from_step(
        self,
        step: int = 0,
        *,
        epochs: int | None = None,
        rank: int | None = None,
        world: int | None = None,
    ) -> Iterator[tuple[int, list[tuple[Path, int]]]]:
        """Yield (step, this worker's examples) from `step` to the end of the last epoch, or forever."""
        return self._walk(self._places.from_step(step, epochs=epochs, rank=rank, world=world))

    def locate(self, index: int) -> tuple[Path, int]:
        """The example with this number, counted across all files."""
        if not 0 <= index < self.count:
            raise IndexError(f"there is no example {index} among {self.count}")
        file = bisect_right(self._ends, index)
        return self.files[file], index - self._ends[file] + self.counts[file]

    def read(self, file: str | os.PathLike[str], position: int) -> bytes:
        """The bytes of an example in a TFRecord file. Safe to call from any number of threads."""
        path = file if isinstance(file, Path) else Path(file)
        records = self._open.get(path) or self._opened(path)
        return records.read(position, self._check)

    def _walk(self, steps: Iterator[tuple[int, list[int]]]) -> Iterator[tuple[int, list[tuple[Path, int]]]]:
        """The examples of one step after another. It looks up many steps of an epoch at once, which costs
        hardly more than one."""
        for epoch, of_epoch in itertools.groupby(steps, lambda one: one[0] // self.steps_per_epoch):
            while some := list(itertools.islice(of_epoch, _AHEAD)):
                found = iter(
                    self._located(epoch * self.steps_per_epoch, [at for _, places in some for at in places])
                )
                for step, places in some:
                    yield step, list(itertools.islice(found, len(places)))

    def _located(self, step: int, places: list[int]) -> list[tuple[Path, int]]:
        """Map places in the order of the epoch that contains `step` to examples."""
        if self.batches.shuffle:
            epoch = step // self.steps_per_epoch
            places = shuffled_near(places, self.count, self.batches.seed, epoch)
        return [self.locate(index) for index in places]

    def _opened(self, path: Path) -> Records:
        if path not in self._starts:
            self._starts[path] = tfrecord.index(path)
        if len(self._open) >= _MOST_OPEN:
            self._open = {}
        records = self._open[path] = Records(path, self._starts[path])
        return records

    def __getstate__(self) -> dict[str, Any]:
        """For data loaders in other processes: open files cannot be pickled."""
        return {**self.__dict__, "_open": {}}


def _found(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    if isinstance(files, (str, os.PathLike)):
        found = tuple(map(Path, sorted(glob.glob(os.fspath(files)))))  # noqa: PTH207 (any pattern)
    else:
        found = tuple(map(Path, files))
    if not found:
        raise FileNotFoundError(f"there are no files {files}: has the ingest run, and where to?")
    return found
