"""MultiWorkerMirroredStrategy as written for TF_CONFIG, by nobody's rules: prints when its first step was
done, so that its log alone can be measured."""

from __future__ import annotations

import json
import os
import time

import keras
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(0)
with strategy.scope():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)])
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def update(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def train(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    return strategy.reduce("MEAN", strategy.run(update, args=batch), axis=None)


examples = (tf.random.normal((1024, 64)), tf.random.uniform((1024,), maxval=10, dtype=tf.int64))
batches = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(examples).repeat()))
train(next(batches)).numpy()
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    print("FIRST STEP", time.time(), flush=True)
for _ in range(5):
    train(next(batches))
