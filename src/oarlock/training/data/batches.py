"""`oarlock.data.Batches`: which examples of a dataset, by index, a step trains on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from oarlock.run.quick_dataclass import dataclass
from oarlock.training.data.order import shuffled
from oarlock.training.task.context import current


@dataclass(frozen=True)
class Batches:
    """`count` examples in batches of `global_batch`, in a new order each epoch.

    Steps are counted from 0 across all epochs. Every batch is full: the examples left over at the end of an
    epoch are skipped in that epoch, and differ from epoch to epoch.
    """

    count: int
    global_batch: int
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.global_batch < 1:
            raise ValueError(f"a global batch of {self.global_batch} examples is empty")
        if self.count < self.global_batch:
            raise ValueError(f"{self.count} examples are too few for one global batch of {self.global_batch}")

    @property
    def steps_per_epoch(self) -> int:
        """The number of full batches in an epoch."""
        return self.count // self.global_batch

    def indices(self, step: int) -> list[int]:
        """The indices of all examples in the global batch of `step`."""
        return self._part(step, 0, self.global_batch)

    def mine(self, step: int, *, rank: int | None = None, world: int | None = None) -> list[int]:
        """The indices of this worker's examples in `step`. The slices of all ranks, in order, make up the
        batch."""
        size, start = self._slice(rank, world)
        return self._part(step, start, start + size)

    def from_step(
        self,
        step: int = 0,
        *,
        epochs: int | None = None,
        rank: int | None = None,
        world: int | None = None,
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield (step, indices of this worker's examples) from `step` to the end of the last epoch, or
        forever."""
        size, start = self._slice(rank, world)  # raises now for wrong numbers, not at the first step
        steps = itertools.count(step) if epochs is None else range(step, epochs * self.steps_per_epoch)
        return ((number, self._part(number, start, start + size)) for number in steps)

    def _slice(self, rank: int | None, world: int | None) -> tuple[int, int]:
        """(size, start) of a rank's slice of every batch."""
        task = current()
        rank = task.rank if rank is None else rank
        world = task.world if world is None else world
        if world < 1 or self.global_batch % world:
            # Unequal slices would be averaged as if they were equal, and the weights would be wrong.
            raise ValueError(
                f"a global batch of {self.global_batch} cannot be split evenly among {world} workers:"
                f" use a multiple of {world}"
            )
        if not 0 <= rank < world:
            raise ValueError(
                f"rank {rank} of {world} has no part of a batch: only the chief and workers have one"
            )
        size = self.global_batch // world
        return size, rank * size

    def _part(self, step: int, start: int, stop: int) -> list[int]:
        if step < 0:
            raise ValueError(f"steps are counted from 0, not from {step}")
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        first = step_in_epoch * self.global_batch
        places = range(first + start, first + stop)
        return shuffled(places, self.count, self.seed, epoch) if self.shuffle else list(places)
