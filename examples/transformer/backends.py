"""What differs between Keras's backends: how workers are connected, and how they get their batches.

With TensorFlow any number of workers run each step together. With PyTorch and JAX there is one: Keras's `fit`
cannot connect several PyTorch workers, and with JAX it needs one program for all devices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras

import oarlock


def connect() -> Alone | Mirrored:
    """Workers that train together, or one."""
    if keras.backend.backend() == "tensorflow":
        return Mirrored()
    if oarlock.current().world > 1:
        raise SystemExit(
            f"Keras on {keras.backend.backend()} trains on one worker here: oarlock run -n 1 ...,"
            " or several with KERAS_BACKEND=tensorflow"
        )
    return Alone()


class Alone:
    def scope(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def feed(self, batches: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The input of `fit`. `batches()` yields this worker's batches without end."""
        return batches()


class Mirrored:
    """All workers run each step together, each on a part of the batch, and have the same weights."""

    def __init__(self) -> None:
        import tensorflow as tf

        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self.scope = self.strategy.scope

    def feed(self, batches: Callable[[], Iterator[Any]]) -> Any:
        import tensorflow as tf

        numbers, weights = (tf.TensorSpec((None, None), kind) for kind in (tf.int32, tf.float32))
        shapes = ({"source": numbers, "target": numbers}, numbers, weights)
        options = tf.data.Options()
        options.autotune.enabled = False  # nothing to tune, and its thread delays the end of training
        return self.strategy.distribute_datasets_from_function(
            lambda _: tf.data.Dataset.from_generator(batches, output_signature=shapes).with_options(options)
        )
