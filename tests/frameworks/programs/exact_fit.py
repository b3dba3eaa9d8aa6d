"""Keras fit under MultiWorkerMirroredStrategy with Dropout, a metric and EarlyStopping. Its input are the
numbers of the examples, so that those it was really trained with can be written down.

train STEPS SAVE PAUSE DROPOUT: saved every so many steps, a pause of so many seconds in each.
"""

import itertools
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from diary import Diary

import oarlock

total, save, pause, dropout = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
task = oarlock.current()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
x = np.random.RandomState(0).randn(240, 16).astype("float32")
y = x.sum(1, keepdims=True)


class Examples(keras.layers.Layer):
    """Those with the given numbers; to train with them is written down before anything else happens."""

    def call(self, numbers, training=False):
        noted = [tf.py_function(begin, [numbers], [])] if training else []
        with tf.control_dependencies(noted):
            return tf.gather(tf.constant(x), numbers)

    def compute_output_shape(self, shape):
        return (*shape, x.shape[1])


class Made(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        diary.made(step, (logs or {}).get("loss", float("nan")))


def begin(numbers):
    global step
    step = next(steps)
    diary.began(step, numbers.numpy())
    time.sleep(pause)


with strategy.scope():
    inputs = keras.Input((), dtype="int32")
    hidden = keras.layers.Dense(64, "gelu")(Examples()(inputs))
    outputs = keras.layers.Dense(1)(keras.layers.Dropout(dropout)(hidden))
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(1e-3), "mse", metrics=["mae"])

batches = oarlock.data.Batches(240, 24, seed=3)
patience = keras.callbacks.EarlyStopping("loss", patience=50)
callbacks = oarlock.keras.callbacks(model, [patience], save=save, keep=1000)
steps, step, diary = itertools.count(callbacks.step), None, Diary()


def examples(_):
    found = tf.data.Dataset.from_generator(
        lambda: (mine for _, mine in batches.from_step(callbacks.step)),
        output_signature=tf.TensorSpec((batches.global_batch // task.world,), tf.int32),
    )
    return found.map(lambda numbers: (numbers, tf.gather(y, numbers)))


history = model.fit(
    strategy.distribute_datasets_from_function(examples),
    epochs=total // batches.steps_per_epoch,
    steps_per_epoch=batches.steps_per_epoch,
    initial_epoch=callbacks.epoch,
    callbacks=[callbacks, Made()],
    verbose=0,
).history
if task.is_chief:
    task.model.mkdir(parents=True, exist_ok=True)
    last = [np.float64(history[name][-1]) for name in sorted(history)]
    np.savez(task.model / "final.npz", *model.get_weights(), *last, np.int64(patience.wait))
