"""Keeping a `model.fit`: it is saved between two batches and goes on there, in the middle of an epoch.

Keras can only begin an epoch at its beginning. So the first one after a restore is begun with the metrics
as they were, ends after the batches that were left of it, and nobody can tell the difference: neither the
weights nor what Keras prints for the epoch. All of it was compared bit by bit under two workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from oarlock.checkpoints.retention import Retention
from oarlock.training.keras.callback import Callback, scalars
from oarlock.training.saving import capture
from oarlock.training.saving.session import Checkpointing
from oarlock.training.steps import schedule
from oarlock.training.steps.boundary import Boundary


class Training:
    """What both callbacks know of one `fit`."""

    def __init__(self, model: Any, others: list[Any], save: int | str | None, retention: Retention) -> None:
        if not getattr(model, "built", False) or getattr(model, "optimizer", None) is None:
            raise ValueError(
                "the model has to be built (give it an Input) and compiled before it can be kept"
            )
        self.model = model
        self.others = others
        self.save = save
        self.checkpointing = Checkpointing(retention)
        with _scope(model):
            _build(model.optimizer, model.trainable_variables)
            kept = {"model": model, "optimizer": model.optimizer}
            self.checkpointing.restore(kept)
        checkpoint = self.checkpointing.checkpoint
        self.step = self.next = self.checkpointing.step  # that is to be made, and that follows it
        self.epoch = 0 if checkpoint is None else int(checkpoint.manifest["epoch"])
        self.length: int | None = None  # steps of an epoch
        self.epochs: int | None = None
        self.metrics: dict[str, Any] = {}
        self.boundary: Boundary | None = None

    def things(self) -> Mapping[str, Any]:
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # under JAX the variables lag behind while an epoch runs
        return {
            "model": self.model,
            "optimizer": self.model.optimizer,
            "metrics": self.metric_variables(),
            "callbacks": [_numbers(other) for other in self.others],
        }

    def metric_variables(self) -> capture.Variables:
        return capture.Variables([one for metric in self.model.metrics for one in metric.variables])

    def begin(self) -> None:
        assert self.length is not None
        when = schedule.read(self.save, self.length)
        self.checkpointing.extra["steps_per_epoch"] = self.length
        self.boundary = Boundary(self.checkpointing, when, self.things, self.step)

    def cross(self) -> None:
        assert self.boundary is not None
        assert self.length is not None
        self.boundary.cross(self.step, self.metrics, self.step // self.length)

    def end(self) -> None:
        if self.boundary is not None and self.length is not None:
            self.boundary.end(self.step, self.metrics, self.step // self.length)
            self.boundary = None


class Opening(Callback):
    """The first of the list: before a batch begins it saves or leaves, and it cuts the first epoch short."""

    async_safe = True  # what has to be in step with the training happens before a batch, never after it

    def __init__(self, training: Training) -> None:
        self._training = training
        self._begin = 0  # the step at which this epoch began, or went on
        self._is_cutting = False

    def set_params(self, params: Mapping[str, Any]) -> None:
        self._training.length, self._training.epochs = params.get("steps"), params.get("epochs")

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        training = self._training
        if training.length is None:
            raise ValueError("to be kept, fit has to know how long an epoch is: pass steps_per_epoch=")
        before = (training.checkpointing.checkpoint or _Nothing).manifest.get(
            "steps_per_epoch", training.length
        )
        if before != training.length:
            raise ValueError(
                f"an epoch had {before} steps when step {training.step} was saved and has {training.length}"
                " now: to go on in the middle of it would mean other examples"
            )
        if training.step >= training.length * (training.epochs or 0):
            training.checkpointing.say_done(training.step)
        training.begin()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        training = self._training
        assert training.length is not None
        if epoch != training.step // training.length:
            raise ValueError(
                f"the training goes on at step {training.step}: pass initial_epoch=callbacks.epoch to fit,"
                " and examples from step callbacks.step on"
            )
        self._begin = training.step
        if training.step > epoch * training.length:
            training.checkpointing.restore_later("metrics", training.metric_variables())

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        training = self._training
        assert training.length is not None
        training.step = self._begin + batch
        training.cross()
        # Looked at by Keras after this batch: the last one of an epoch that was not begun at its beginning.
        training.next = training.step + int(getattr(training.model, "steps_per_execution", 1) or 1)
        if self._begin % training.length and training.next % training.length == 0:
            self._is_cutting = training.model.stop_training = True

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._training.metrics.update(scalars(logs or {}))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._training.metrics.update(scalars(logs or {}))
        self._training.step = self._training.next
        if self._is_cutting:
            self._is_cutting = self._training.model.stop_training = False


class Closing(Callback):
    """The last of the list: when told of the beginning, the others have set themselves to their start."""

    async_safe = True

    def __init__(self, training: Training) -> None:
        self._training = training

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        kept = self._training.checkpointing.restore_later("callbacks", None) or []
        for other, numbers in zip(self._training.others, kept):
            vars(other).update(numbers)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._training.end()


class _Nothing:
    manifest: Mapping[str, Any] = {}


def _scope(model: Any) -> Any:
    strategy = getattr(model, "distribute_strategy", None)
    return nullcontext() if strategy is None else strategy.scope()


def _build(optimizer: Any, variables: list[Any]) -> None:
    if not getattr(optimizer, "built", getattr(optimizer, "_built", True)):
        optimizer.build(variables)


def _numbers(callback: Any) -> dict[str, Any]:
    """What EarlyStopping, ReduceLROnPlateau and their like count with."""
    return {
        name: value
        for name, value in vars(callback).items()
        if isinstance(value, (bool, int, float)) and not name.startswith("_")
    }
