"""What differs between Keras's backends: how workers are connected, and how they get their batches.

With TensorFlow and JAX any number of workers run each step together. With PyTorch there is one: Keras's `fit`
does not combine the gradients of several.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras

import oarlock


def connect() -> Alone | Mirrored:
    """Workers that train together, or one."""
    backend, world = keras.backend.backend(), oarlock.current().world
    if backend == "tensorflow":
        return Mirrored()
    if backend == "jax" and world > 1:
        import jax

        jax.distributed.initialize()
        return Parallel()
    if world > 1:
        raise SystemExit(
            f"Keras on {backend} trains on one worker here: oarlock run -n 1 ...,"
            " or several with KERAS_BACKEND=tensorflow or jax"
        )
    return Alone()


class Alone:
    def scope(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def feed(self, batches: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The input of `fit`. `batches()` yields this worker's batches without end."""
        return batches()


class Parallel(Alone):
    """One program over the devices of all workers: each has a part of the batch, and all have the weights."""

    def __init__(self) -> None:
        # The batches are already this worker's part.
        keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))


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
