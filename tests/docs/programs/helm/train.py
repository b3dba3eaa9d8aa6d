"""For the Helm recipe, `program`: weights on parameter servers, steps that the chief gives to workers."""

import keras
import numpy as np
import tensorflow as tf
from model import build

import oarlock

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    ).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
keras.utils.set_random_seed(1)
with strategy.scope():
    model = build()
    optimizer = keras.optimizers.Adagrad(0.3)
    optimizer.build(model.trainable_variables)
rows = np.concatenate([np.load(path) for path in sorted(oarlock.current().data.glob("train-*.npy"))])


def batches():
    return tf.data.Dataset.from_tensor_slices((rows[:, :6], rows[:, 6])).shuffle(400).repeat().batch(32)


@tf.function
def step(iterator):
    def update(x, y):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
            loss = tf.reduce_mean(losses)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    return strategy.run(update, args=next(iterator))


data = iter(coordinator.create_per_worker_dataset(batches))
state = oarlock.State(model=model, optimizer=optimizer)
for _ in state.steps(60, save=20, keep=10):
    state.report(loss=coordinator.schedule(step, args=(data,)))
