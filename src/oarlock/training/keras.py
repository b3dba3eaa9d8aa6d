"""`oarlock.keras`: what a program that calls `model.fit` passes to it. Works with Keras 3 and tf_keras.

Imports neither: a callback of ours only has to answer to the names that both of them call.
Stopping a run at the next batch is not done here: the workers would have to leave after the same
batch, and nothing yet tells them which one that is.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Callable

from oarlock.training.context import current


def callbacks() -> list[Any]:
    """For `model.fit(..., callbacks=oarlock.keras.callbacks())`: tells how far the training is."""
    return [Progress()]


class Progress:
    """Reports step, total, epoch and the metrics that Keras hands over. It reads no metric itself: under
    MultiWorkerMirroredStrategy that is a collective, which one worker alone must not begin."""

    # With JAX and PyTorch below it, Keras 3 waits for the metrics of every batch if one callback is not safe
    # to be called from a thread; tf_keras does unless all take tensors. Read is what is sent, and only then.
    async_safe = True
    _supports_tf_logs = True

    def __init__(self) -> None:
        self._task = current()
        self._lock = threading.Lock()
        self._epochs: int | None = None
        self._steps: int | None = None  # of an epoch
        self._before = 0  # steps, when this epoch began
        self._done = 0  # steps of this epoch
        self._epoch = 0

    def set_params(self, params: Mapping[str, Any]) -> None:
        self._epochs, self._steps = params.get("epochs"), params.get("steps")

    def set_model(self, model: Any) -> None:
        pass

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._epoch, self._done = epoch, 0
        if self._steps is not None:
            self._before = epoch * self._steps

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        with self._lock:
            if batch < self._done:
                return  # called from several threads, Keras' batches may overtake each other
            self._done = batch + 1
            self._report(logs)

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self._done:
            self._report(None)  # validation within fit: no step is made, but nothing hangs either

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._report(logs)
        self._steps = self._steps or self._done  # a dataset of unknown length: known from now on
        self._done = 0

    def _report(self, logs: Mapping[str, Any] | None) -> None:
        total = None if self._epochs is None or self._steps is None else self._epochs * self._steps
        metrics = {"epoch": self._epoch + 1, **_scalars(logs or {})}
        self._task.report(self._before + self._done, total=total, **metrics)

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return True

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """For every other moment that Keras tells of."""


def _scalars(logs: Mapping[str, Any]) -> dict[str, Any]:
    """By their shape, so that no tensor is read here; a name that `report` has itself is left out."""
    return {
        name: value
        for name, value in logs.items()
        if name not in ("self", "step", "total") and tuple(getattr(value, "shape", ())) == ()
    }
