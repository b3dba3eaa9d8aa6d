"""TensorFlow with a loop of its own under MultiWorkerMirroredStrategy: a Keras model with Dropout, a metric.

train STEPS SAVE PAUSE DROPOUT: saved every so many steps, a pause of so many seconds in each.
"""

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
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((16,)),
            keras.layers.Dense(64, "gelu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    mean = keras.metrics.Mean()

batches = oarlock.data.Batches(240, 24, seed=3)


@tf.function
def train(x, y):
    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / batches.global_batch
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        mean.update_state(loss)
        return loss

    return strategy.reduce("SUM", strategy.run(replica, (x, y)), axis=None)


state = oarlock.State(model=model, optimizer=optimizer, mean=mean)
diary = Diary()
for step in state.steps(total, save=save, keep=1000, batches=batches):
    mine = batches.mine(step)
    diary.began(step, mine)
    loss = train(tf.constant(x[mine]), tf.constant(y[mine]))
    time.sleep(pause)
    diary.made(step, loss)
    state.report(loss=loss)

result = np.float64(mean.result())  # all ranks together
if task.is_chief:
    task.model.mkdir(parents=True, exist_ok=True)
    np.savez(task.model / "final.npz", *model.get_weights(), result)
