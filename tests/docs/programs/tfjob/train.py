"""For the TFJob recipe: a `master` prepares features; then `fit` of tf_keras on parameter servers."""

import json
import os
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

import oarlock

config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
# TensorFlow's strategy takes chief, worker and ps alone. It needs no address of who leads.
cluster = tf.train.ClusterSpec({job: config["cluster"][job] for job in ("worker", "ps")})
if role != "master":
    tf.distribute.Server(cluster, job_name=role, task_index=index, protocol="grpc").join()


def prepare(folder: Path) -> None:
    written = (oarlock.current().data / "issues.csv").read_text().split()
    rows = np.array([line.split(",") for line in written], "float32")
    np.save(folder / "features.npy", (rows - rows.mean(0)) / rows.std(0))


features = np.load(oarlock.data.once(oarlock.current().model.parent / "features", prepare) / "features.npy")
tf_keras.utils.set_random_seed(1)
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
)
with strategy.scope():
    model = tf_keras.Sequential([tf_keras.Input((2,)), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.Adagrad(0.3), "mse")


def examples(context):
    """Each worker has all of them in an order of its own."""
    rows = tf.data.Dataset.from_tensor_slices((features[:, :2], features[:, 2]))
    return rows.shuffle(len(features)).repeat().batch(32)


callbacks = oarlock.keras.callbacks(model, save=20)
model.fit(
    tf_keras.utils.experimental.DatasetCreator(examples),
    steps_per_epoch=20,
    epochs=4,
    initial_epoch=callbacks.epoch,
    callbacks=callbacks,
    verbose=0,
)
np.save(oarlock.current().model / "weights.npy", model.get_weights()[0])
