"""Written for TF_CONFIG: MultiWorkerMirroredStrategy, Keras 3 fit, nothing of ours."""

import json
import os

import keras
import numpy as np
import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
assert isinstance(config["task"]["index"], int)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
x = np.arange(256, dtype="float32").reshape(64, 4) / 256
data = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).batch(16)
losses = model.fit(data, epochs=3, verbose=0).history["loss"]
assert losses[-1] < losses[0]
model.save(os.environ["MODEL_DIR"] + "/model.keras")
print(f"worker {config['task']['index']} of {strategy.num_replicas_in_sync}: loss {losses[-1]:.5f}")
