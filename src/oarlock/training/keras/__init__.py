"""`oarlock.keras`: callbacks for `model.fit`. They work with Keras 3 and tf_keras.

    callbacks = oarlock.keras.callbacks(model, save="30s")
    model.fit(examples_from(callbacks.step), initial_epoch=callbacks.epoch, callbacks=callbacks, ...)

Neither is imported: a callback only needs to have the methods that both of them call. Imports `checkpoints`;
of `training`: `frameworks`, `saving`, `steps`, `task` and `tensors`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable

from oarlock.training.keras.callback import Callback, scalars
from oarlock.training.task.context import current


class Callbacks(Callback):
    """A list of callbacks for `model.fit(..., callbacks=...)`.

    `step` and `epoch` are where training resumes: 0 in a new run.
    """

    def __init__(self, parts: Iterable[Any], step: int = 0, epoch: int = 0) -> None:
        self._parts = list(parts)
        self.step, self.epoch = step, epoch
        # With the JAX and PyTorch backends, Keras 3 waits for the metrics of every batch if a callback is not
        # safe to call from a thread.
        self.async_safe = all(getattr(part, "async_safe", False) for part in self._parts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Pass Keras's parameters to every callback."""
        for part in self._parts:
            part.set_params(params)

    def set_model(self, model: Any) -> None:
        """Pass the model to every callback."""
        for part in self._parts:
            part.set_model(model)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on_"):
            raise AttributeError(name)

        def call_all(*args: Any, **kwargs: Any) -> None:
            for part in self._parts:
                getattr(part, name)(*args, **kwargs)

        return call_all


def callbacks(
    model: Any = None,
    others: Iterable[Any] = (),
    *,
    save: int | str | None = "1m",
    keep: int = 3,
    keep_every: int | None = None,
    best: str | None = None,
    export: Callable[[], Any] | None = None,
    export_every: int | None = None,
) -> Callbacks:
    """Report progress and, with a model, save checkpoints and resume from them.

    The model must be built and compiled: this call restores it from the newest checkpoint, and `fit` resumes
    in the middle of an epoch if the run stopped there.

    others: your own callbacks; the numbers they hold (EarlyStopping's patience) are saved as well.
    save, keep, keep_every, best, export, export_every: as in `oarlock.State.steps`.
    """
    if model is None and export is not None:
        raise ValueError("export= is called when a checkpoint is saved: pass the model, too")
    if model is None:
        return Callbacks([Progress(), *others])
    from oarlock.checkpoints.retention import Retention
    from oarlock.training.keras.fit_checkpoints import Closing, Opening, Training
    from oarlock.training.steps.exports import Exports

    others = list(others)
    exports = Exports(export, export_every)
    training = Training(model, others, save, Retention(keep, keep_every, best), exports)
    parts = [Opening(training), Progress(training.step), *others, Closing(training)]
    return Callbacks(parts, training.step, training.epoch)


class Progress(Callback):
    """Reports step, total, epoch and the metrics that Keras passes. It computes no metric itself: under
    MultiWorkerMirroredStrategy that is a collective, which a single worker must not start."""

    async_safe = True  # a metric's value is read only when it is sent

    def __init__(self, first: int = 0, report: Callable[..., None] | None = None) -> None:
        self._send = current().report if report is None else report
        self._first = first  # the step at which training resumes
        self._lock = threading.Lock()
        self._epochs: int | None = None
        self._steps: int | None = None  # per epoch
        self._before = 0  # steps before this epoch
        self._done = 0  # steps in this epoch
        self._epoch = 0

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Take the number of epochs from Keras, and the steps per epoch if Keras knows them."""
        self._epochs, self._steps = params.get("epochs"), params.get("steps")

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Note the epoch's first step, which is in the middle of the epoch if training resumed there."""
        self._epoch, self._done = epoch, 0
        if self._steps is not None:
            self._before = max(epoch * self._steps, self._first)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report the step, unless a later one was already reported."""
        with self._lock:
            if batch < self._done:
                return  # Keras calls this from several threads, so batches may overtake each other
            self._done = batch + 1
            self._report(logs)

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report that validation within fit is alive; the step stays the same."""
        if self._done:
            self._report(None)  # validation within fit: no step is done, but nothing hangs either

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report the metrics of the epoch, including validation."""
        self._report(logs)
        self._steps = self._steps or self._done  # a dataset of unknown length: known from now on
        self._done = 0

    def _report(self, logs: Mapping[str, Any] | None) -> None:
        total = None if self._epochs is None or self._steps is None else self._epochs * self._steps
        metrics = {"epoch": self._epoch + 1, **scalars(logs or {})}
        self._send(self._before + self._done, total=total, **metrics)
