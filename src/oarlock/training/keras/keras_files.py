"""Keras 3's callbacks that write files, with several workers: the leader writes, and all workers resume.

Every worker wrote the same file, and all but one died of BlockingIOError. If workers shared no folder, only
the leader found its backup, and the workers trained different epochs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from oarlock.training.frameworks import coordinators
from oarlock.training.keras.keras_source import Change


def writing(trainer: Any) -> Iterator[Change]:
    """Let only the leader write and delete; `restore` does all restoring."""
    from keras.src.callbacks.backup_and_restore import BackupAndRestore
    from keras.src.callbacks.model_checkpoint import ModelCheckpoint

    several_workers = trainer._collective_all_reduce_multi_worker

    def by_leader(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def write(self: Any, *args: Any, **kwargs: Any) -> None:
            coordinators.join()  # with parameter servers, steps may still be in flight
            strategy = self.model._distribute_strategy
            if not several_workers(strategy) or strategy.extended.should_checkpoint:
                original(self, *args, **kwargs)

        return write

    def alone(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def begin(self: Any, *args: Any, **kwargs: Any) -> None:
            if not several_workers(self.model._distribute_strategy):
                original(self, *args, **kwargs)

        return begin

    yield ModelCheckpoint, "_save_model", by_leader(ModelCheckpoint._save_model)
    yield BackupAndRestore, "_save_model", by_leader(BackupAndRestore._save_model)
    yield BackupAndRestore, "on_train_end", by_leader(BackupAndRestore.on_train_end)
    yield BackupAndRestore, "on_train_begin", alone(BackupAndRestore.on_train_begin)


def restore(model: Any, strategy: Any, callbacks: Any) -> None:
    """Restore the leader's backup and give it to all workers: weights, optimizer, epoch. Every worker calls
    this before `fit`, whether or not it has such a callback."""
    import tensorflow as tf
    from keras.src.callbacks.backup_and_restore import BackupAndRestore

    leads = bool(strategy.extended.should_checkpoint)
    mine = [one for one in _flat(callbacks) if leads and isinstance(one, BackupAndRestore)]
    if not _sum(tf, strategy, sum(tf.io.gfile.exists(one._weights_path) for one in mine)):
        return
    with strategy.scope():
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)  # all workers create its variables together
    for one in mine:
        one.set_model(model)
        BackupAndRestore.on_train_begin.__wrapped__(one)
    with strategy.scope():
        for variable in [*model.weights, *model.optimizer.variables]:
            _give_out(tf, strategy, variable, leads)
    model._initial_epoch = _sum(tf, strategy, model._initial_epoch or 0 if leads else 0)


def _sum(tf: Any, strategy: Any, number: int) -> int:
    """The sum over all workers."""
    return int(strategy.reduce("SUM", tf.constant(number, tf.int64), axis=None))


def _flat(callbacks: Any) -> Iterator[Any]:
    """The callbacks of `fit`: None, one, or several in a list, a CallbackList or an `oarlock.keras` list."""
    inside = getattr(callbacks, "callbacks", callbacks)
    try:
        several = list(inside or ())
    except TypeError:
        several = [inside]
    yield from several


def _give_out(tf: Any, strategy: Any, variable: Any, leads: bool) -> None:
    """Give all workers the leader's value: the sum of it and zeros."""
    value = strategy.experimental_local_results(variable.value)[0].read_value()
    exact = value.dtype if value.dtype in (tf.float32, tf.float64) else tf.int64
    exact = tf.float32 if value.dtype in (tf.float16, tf.bfloat16) else exact
    mine = tf.cast(value, exact) if leads else tf.zeros(value.shape, exact)
    variable.assign(tf.cast(strategy.reduce("SUM", mine, axis=None), value.dtype))
