"""For the Jinja recipe: Keras `fit` on all workers, on made-up digits; the chief's model stays."""

import keras
import numpy as np
import tensorflow as tf

import oarlock

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
chance = np.random.default_rng(1)
labels = chance.integers(0, 10, 512)
images = (chance.random((10, 8, 8, 1))[labels] + chance.normal(0, 0.1, (512, 8, 8, 1))).astype("float32")
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.02),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
callbacks = oarlock.keras.callbacks(model, save="epoch")
data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(64)  # of all workers together
model.fit(data, initial_epoch=callbacks.epoch, epochs=6, verbose=0, callbacks=callbacks)
model.export(oarlock.current().model, verbose=False)
