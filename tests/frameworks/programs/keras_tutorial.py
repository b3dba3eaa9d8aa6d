"""TensorFlow's tutorial "Multi-worker training with Keras", on noise of MNIST's shape. Before it, a witness
that says when a distributed iterator is destroyed."""

import json
import os
import weakref

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import input_lib

born = input_lib.DistributedIterator.__init__


def witnessed(self, *args, **kwargs):
    born(self, *args, **kwargs)
    if kwargs.get("components") is None:  # else it is another view of one
        print("an iterator was made", flush=True)
        weakref.finalize(self, print, "an iterator was destroyed", flush=True).atexit = False


input_lib.DistributedIterator.__init__ = witnessed


def mnist_dataset(batch_size):
    x_train = np.random.default_rng(0).random((600, 28, 28), np.float32)
    y_train = np.arange(600, dtype=np.int64) % 10
    return tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(600).repeat().batch(batch_size)


def build_and_compile_cnn_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer(shape=(28, 28)),
            tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(4, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.001),
        metrics=["accuracy"],
    )
    return model


per_worker_batch_size = 64
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])

strategy = tf.distribute.MultiWorkerMirroredStrategy()

global_batch_size = per_worker_batch_size * num_workers
multi_worker_dataset = mnist_dataset(global_batch_size)

with strategy.scope():
    multi_worker_model = build_and_compile_cnn_model()

multi_worker_model.fit(multi_worker_dataset, epochs=3, steps_per_epoch=4)
