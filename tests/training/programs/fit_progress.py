"""`model.fit` with `oarlock.keras.callbacks()`, every report sent: `fit_progress.py keras`, or `tf_keras`."""

import importlib
import json
import sys

import numpy as np
import tensorflow as tf

import oarlock
from oarlock.training.task import channel

channel._INTERVAL = 0
keras = importlib.import_module(sys.argv[1])


def fit(data):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    history = model.fit(data, validation_data=data, epochs=2, verbose=0, callbacks=oarlock.keras.callbacks())
    model.evaluate(data, verbose=0, callbacks=oarlock.keras.callbacks())  # not a step of anything
    return history.history


def waits_for_every_batch():
    """Keras computes on while a callback is told of a batch, if the backend and all callbacks allow it."""
    backend_allows = sys.argv[1] == "keras" and keras.config.backend() != "tensorflow"
    return backend_allows and not keras.callbacks.CallbackList(oarlock.keras.callbacks())._async_train


data = tf.data.Dataset.from_tensor_slices((np.ones((12, 2), "float32"), np.ones((12, 1), "float32"))).batch(4)
known = fit(data)
oarlock.current().note("and now of unknown length")
unknown = fit(data.filter(lambda *_: True))
print(json.dumps({"known": known, "unknown": unknown, "waits": waits_for_every_batch()}))
