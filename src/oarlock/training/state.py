"""`oarlock.State`: the objects that a custom training loop saves, and the steps it has left.

    state = oarlock.State(model=model, optimizer=optimizer)
    for step in state.steps(1000, save="30s"):
        state.report(loss=train(step))

The program is the same whether the run starts or resumes: if there is a checkpoint, State restores every
object from it and `steps` starts there. It saves in the background while training continues. When the run is
asked to stop, it exits at a step that all workers agree on. It resumes bit for bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from oarlock.checkpoints.retention import Retention
from oarlock.training.data import Batches
from oarlock.training.frameworks import coordinators, randomness
from oarlock.training.saving.new_checkpoints import NewCheckpoints
from oarlock.training.saving.session import CheckpointSession
from oarlock.training.steps import schedule
from oarlock.training.steps.boundary import Boundary
from oarlock.training.steps.exports import Exports
from oarlock.training.steps.schedule import Schedule


class State:
    """Named objects that are saved and restored together.

    Each may be a torch module or optimizer, a Keras model or optimizer, a TensorFlow variable, a JAX pytree,
    a NumPy array, a number, or a dict or list of these. If an object is replaced rather than changed in
    place, set it as an attribute: `state.params = new_params`.
    """

    def __init__(self, **objects: Any) -> None:
        for name in objects:
            if name.startswith("_"):
                raise ValueError(f"State cannot save {name} under that name: it starts with an underscore")
            if hasattr(type(self), name):
                raise ValueError(f"State cannot save {name} under that name: State.{name} is taken")
        self._objects = objects
        self._metrics: dict[str, Any] = {}
        self._remote = coordinators.RemoteMetrics()
        self._session = CheckpointSession()
        self._session.restore(self._objects)
        self._next = self._session.step

    def __getattr__(self, name: str) -> Any:
        objects = self.__dict__.get("_objects", {})
        if name not in objects:
            raise AttributeError(f"this State has no {name}")
        return objects[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        elif name in self._objects:
            self._objects[name] = value
        else:
            raise AttributeError(f"pass {name} when you create the State: State({name}=...)")

    @property
    def step(self) -> int:
        """The next step; 0 in a new run."""
        return self._next

    def report(self, **metrics: Any) -> None:
        """Report metrics of the current step, such as loss or accuracy."""
        self._metrics.update(self._remote.take(metrics))

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
        export: Callable[[], Any] | None = None,
        export_every: int | None = None,
    ) -> Iterator[int]:
        """Yield the remaining steps of `total`, counted from 0, and save between them.

        save: every 100 steps (100), every 30 seconds ("30s"), at the end of each epoch of `batches`
            ("epoch"), or only at the end and when the run is asked to stop (None).
        keep, keep_every, best: keep the newest `keep` checkpoints, those of every `keep_every`-th step, and
        the best by a reported metric ("loss" is best when lowest, "max:accuracy" when highest).
        batches: record in the checkpoint which examples each step uses.
        reseed: make what random, NumPy and torch draw depend on the step, not on earlier steps.
        export: a function that exports the model (`oarlock.export`). Every rank calls it after each save, or,
            with `export_every`, every `export_every` steps, which are saved as well; and after the last step.
            If it fails before that, a line says so and training continues.
        """
        epoch = None if batches is None else batches.steps_per_epoch
        when = schedule.read(save, epoch)
        self._session.retention = Retention(keep, keep_every, best)
        self._session.know_batches(None if batches is None else dataclasses.asdict(batches))
        return self._steps(int(total), when, epoch, reseed, Exports(export, export_every))

    def follow(self) -> Iterator[int]:
        """Yield the step of every checkpoint after restoring all objects from it, until training has ended
        and the last checkpoint is scored. What the loop passes to `report` is the score of that step.

        For an evaluator. Without a launcher, it yields the checkpoints that exist.
        """
        task = self._session.task
        if task.is_launched and not task.is_evaluator:
            raise RuntimeError(
                f"state.follow() is for an evaluator, and this is {task.role}-{task.index}: "
                "a trainer calls state.steps()"
            )
        return self._follow(NewCheckpoints(task, self._session.folder))

    def _follow(self, found: NewCheckpoints) -> Iterator[int]:
        for checkpoint in found:
            if isinstance(checkpoint, str):
                self._session.say(checkpoint)
                continue
            try:
                self._session.restore_from(checkpoint, self._objects)
            except FileNotFoundError:
                continue  # retention deleted it in the meantime; the next one restores everything
            self._next, self._metrics = checkpoint.step, {}
            try:
                yield checkpoint.step
            except GeneratorExit:
                if self._metrics:  # the program left the loop after it scored this one
                    found.score(checkpoint, self._metrics)
                raise
            found.score(checkpoint, self._metrics)

    def _steps(
        self, total: int, when: Schedule, epoch: int | None, reseed: bool, exports: Exports
    ) -> Iterator[int]:
        task = self._session.task
        boundary = Boundary(self._session, when, lambda: self._objects, self._next, exports)
        if self._next >= total:
            self._session.say_done(total)
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
        coordinators.join()
        self.report()  # what workers computed in the meantime
        boundary.end(self._next, self._metrics, _epoch(self._next, epoch))


def _epoch(step: int, length: int | None) -> int | None:
    return None if length is None else step // length
