"""Checkpoints of `model.fit`: it saves between two batches and resumes there, in the middle of an epoch.

Keras can only start an epoch at its beginning. So the first epoch after a restore starts with the restored
metrics and ends after the batches that were left of it. Neither the weights nor what Keras prints for the
epoch differ from a run without a break: all of it was compared bit by bit with two workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from oarlock.checkpoints.retention import Retention
from oarlock.training.frameworks import coordinators
from oarlock.training.keras.callback import Callback, scalars
from oarlock.training.saving.session import CheckpointSession
from oarlock.training.steps import schedule
from oarlock.training.steps.boundary import Boundary
from oarlock.training.steps.exports import Exports
from oarlock.training.tensors import capture, sharded_variables, tensor_bytes


class Training:
    """What both callbacks share about one `fit`."""

    def __init__(
        self, model: Any, others: list[Any], save: int | str | None, retention: Retention, exports: Exports
    ) -> None:
        if not getattr(model, "built", False) or getattr(model, "optimizer", None) is None:
            raise ValueError(
                "build the model (give it an Input) and compile it before you pass it to callbacks()"
            )
        self.model = model
        self.others = others
        self.save = save
        self.exports = exports
        self.session = CheckpointSession(retention)
        with _scope(model):
            _build(model.optimizer, model.trainable_variables)
            self.session.restore({"model": model, "optimizer": model.optimizer})
        checkpoint = self.session.checkpoint
        self.step = self.next = self.session.step  # the current step and the next one
        self.epoch = 0 if checkpoint is None else int(checkpoint.manifest["epoch"])
        self.length: int | None = None  # steps of an epoch
        self.epochs: int | None = None
        self.metrics: dict[str, Any] = {}
        self.boundary: Boundary | None = None

    def objects(self) -> Mapping[str, Any]:
        """What to save, with its current values."""
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # with JAX the variables lag behind during an epoch
        return {
            "model": self.model,
            "optimizer": self.model.optimizer,
            "metrics": self.metric_variables(),
            "callbacks": [_numbers(other) for other in self.others],
        }

    def metric_variables(self) -> capture.Variables:
        """The sums and counts of this epoch's metrics, so that their means continue after a restore."""
        return capture.Variables([each for metric in self.model.metrics for each in metric.variables])

    def restore_metrics_late(self) -> None:
        """Restore them after the first batch: in tf_keras they do not exist before. They are sums over
        batches, so what that batch added is added again."""
        coordinators.join()
        metrics = self.metric_variables()
        variables = sharded_variables.joined(metrics.variables)
        added = [_read(variable) for variable in variables]
        if self.session.restore_later("metrics", metrics) is not None:
            for variable, array in zip(variables, added):
                tensor_bytes.assign(variable, _read(variable) + array)

    def begin(self) -> None:
        """Take part in the ranks' agreement on steps from now on; needs `length`."""
        assert self.length is not None
        when = schedule.read(self.save, self.length)
        self.session.extra["steps_per_epoch"] = self.length
        self.boundary = Boundary(self.session, when, self.objects, self.step, self.exports)

    def cross(self) -> None:
        """Save before `step` if it is time. Raises SystemExit if the run is to stop."""
        assert self.boundary is not None
        assert self.length is not None
        self.boundary.cross(self.step, self.metrics, self.step // self.length)

    def end(self) -> None:
        """Save the last step. Does nothing if training has not begun."""
        if self.boundary is not None and self.length is not None:
            self.boundary.end(self.step, self.metrics, self.step // self.length)
            self.boundary = None


class Opening(Callback):
    """The first in the list: it saves or exits before a batch begins, and cuts the first epoch short."""

    async_safe = True  # what must be in step with training happens before a batch, never after it

    def __init__(self, training: Training) -> None:
        self._training = training
        self._begin = 0  # the step at which this epoch began or resumed
        self._is_cutting = False
        self._lacks_metrics = False  # those of the epoch that was split

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Take the length of an epoch from Keras, if Keras knows it."""
        self._training.length, self._training.epochs = params.get("steps"), params.get("epochs")

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Raise ValueError if the length of an epoch is unknown or differs from the checkpoint's."""
        training = self._training
        if training.length is None:
            raise ValueError("to save, fit must know the length of an epoch: pass steps_per_epoch=")
        before = (training.session.checkpoint or _Nothing).manifest.get("steps_per_epoch", training.length)
        if before != training.length:
            raise ValueError(
                f"an epoch had {before} steps when step {training.step} was saved and has {training.length}"
                " now: resuming in the middle of it would mean other examples"
            )
        if training.step >= training.length * (training.epochs or 0):
            training.session.say_done(training.step)
        training.begin()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Restore the metrics in the middle of an epoch. Raises ValueError if it is another epoch."""
        training = self._training
        assert training.length is not None
        if epoch != training.step // training.length:
            raise ValueError(
                f"training resumes at step {training.step}: pass initial_epoch=callbacks.epoch to fit,"
                " and examples from step callbacks.step on"
            )
        self._begin = training.step
        if training.step > epoch * training.length:
            metrics = training.metric_variables()
            self._lacks_metrics = not metrics.variables
            if metrics.variables:
                training.session.restore_later("metrics", metrics)

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Save or exit here; make Keras stop after the last batch of an epoch that started late."""
        training = self._training
        assert training.length is not None
        training.step = self._begin + batch
        training.cross()
        # Keras reads this after the batch: whether it is the last one of an epoch that started late.
        training.next = training.step + int(getattr(training.model, "steps_per_execution", 1) or 1)
        if self._begin % training.length and training.next % training.length == 0:
            self._is_cutting = training.model.stop_training = True

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Note the metrics for the next checkpoint."""
        if self._lacks_metrics:
            self._lacks_metrics = False
            self._training.restore_metrics_late()
        self._training.metrics.update(scalars(logs or {}))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Make Keras continue with the next epoch after the first was cut short."""
        self._training.metrics.update(scalars(logs or {}))
        self._training.step = self._training.next
        if self._is_cutting:
            self._is_cutting = self._training.model.stop_training = False


class Closing(Callback):
    """The last in the list: when fit begins, the user's callbacks before it have already reset themselves."""

    async_safe = True

    def __init__(self, training: Training) -> None:
        self._training = training

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Restore the counters of the user's callbacks."""
        saved = self._training.session.restore_later("callbacks", None) or []
        for other, numbers in zip(self._training.others, saved):
            vars(other).update(numbers)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Save the last step."""
        self._training.end()


class _Nothing:
    manifest: Mapping[str, Any] = {}


def _scope(model: Any) -> Any:
    strategy = getattr(model, "distribute_strategy", None)
    return nullcontext() if strategy is None else strategy.scope()


def _read(variable: Any) -> Any:
    """The value of a variable; for a metric, each replica's value."""
    leaf = tensor_bytes.leaf(variable)
    assert leaf is not None
    memory = memoryview(bytearray(leaf.shape.bytes))
    leaf.write(memory)
    return tensor_bytes.to_numpy([(leaf.shape, memory)])


def _build(optimizer: Any, variables: list[Any]) -> None:
    if hasattr(optimizer, "_create_all_weights"):  # tf_keras.optimizers.legacy
        optimizer._create_all_weights(variables)
    elif not getattr(optimizer, "built", getattr(optimizer, "_built", False)):
        optimizer.build(variables)


def _numbers(callback: Any) -> dict[str, Any]:
    """The counters of a callback such as EarlyStopping or ReduceLROnPlateau."""
    return {
        name: value
        for name, value in vars(callback).items()
        if isinstance(value, (bool, int, float)) and not name.startswith("_")
    }
