"""`oarlock.State`: what a training loop of one's own keeps, and the steps it has left to do.

    state = oarlock.State(model=model, optimizer=optimizer)
    for step in state.steps(1000, save="30s"):
        state.report(loss=train(step))

Made in the same way whether the run begins or goes on: if there is a checkpoint, everything is put where it
was, and `steps` starts there. It saves on time without stopping the training, leaves at a step that all
workers agree on when the run is asked to end, and goes on bit for bit where it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from oarlock.checkpoints.retention import Retention
from oarlock.training.data import Batches
from oarlock.training.frameworks import randomness
from oarlock.training.saving.session import Checkpointing
from oarlock.training.steps import schedule
from oarlock.training.steps.boundary import Boundary
from oarlock.training.steps.schedule import Schedule


class State:
    """Anything with a state, by name: torch modules and optimizers, Keras models and optimizers, TensorFlow
    variables, JAX pytrees, NumPy arrays, numbers. What is replaced rather than changed is set as an
    attribute: `state.params = new_params`."""

    def __init__(self, **things: Any) -> None:
        for name in things:
            if name.startswith("_"):
                raise ValueError(f"{name} cannot be kept under that name: it begins with an underscore")
            if hasattr(type(self), name):
                raise ValueError(f"{name} cannot be kept under that name: State.{name} is something else")
        self._things = things
        self._metrics: dict[str, Any] = {}
        self._checkpointing = Checkpointing()
        self._checkpointing.restore(self._things)
        self._next = self._checkpointing.step

    def __getattr__(self, name: str) -> Any:
        things = self.__dict__.get("_things", {})
        if name not in things:
            raise AttributeError(f"this State keeps no {name}")
        return things[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        elif name in self._things:
            self._things[name] = value
        else:
            raise AttributeError(f"name {name} when the State is made: State({name}=...)")

    @property
    def step(self) -> int:
        """The next step to do: 0 in a new run."""
        return self._next

    def report(self, **metrics: Any) -> None:
        """What to say about the step that is being made: its loss, its accuracy."""
        self._metrics.update(metrics)

    def steps(
        self,
        total: int,
        *,
        save: int | str | None = "1m",
        keep: int = 3,
        keep_every: int | None = None,
        best: str | None = None,
        batches: Batches | None = None,
        reseed: bool = True,
    ) -> Iterator[int]:
        """The steps left of `total`, counted from 0.

        save: every so many steps (100), every so often ("30s"), or at the end of each "epoch" of `batches`.
        keep, keep_every, best: the newest so many stay, every so manieth step, and the best by a metric that
        was reported ("loss" is best when least, "max:accuracy" when greatest).
        reseed: random, NumPy and torch draw numbers that depend on the step, not on what came before.
        """
        epoch = None if batches is None else batches.steps_per_epoch
        when = schedule.read(save, epoch)
        self._checkpointing.retention = Retention(keep, keep_every, best)
        self._checkpointing.know_batches(None if batches is None else dataclasses.asdict(batches))
        return self._steps(int(total), when, epoch, reseed)

    def _steps(self, total: int, when: Schedule, epoch: int | None, reseed: bool) -> Iterator[int]:
        task = self._checkpointing.task
        boundary = Boundary(self._checkpointing, when, lambda: self._things, self._next)
        if self._next >= total:
            self._checkpointing.say_done(total)
        try:
            while self._next < total:
                boundary.cross(self._next, self._metrics, _epoch(self._next, epoch))
                if reseed:
                    randomness.seed(task.seed, self._next, task.rank)
                yield self._next
                self._next += 1
                made = {} if epoch is None else {"epoch": (self._next - 1) // epoch + 1}
                task.report(self._next, total=total, **made, **self._metrics)
        except GeneratorExit:
            boundary.abandon()
            raise
        boundary.end(self._next, self._metrics, _epoch(self._next, epoch))


def _epoch(step: int, length: int | None) -> int | None:
    return None if length is None else step // length
