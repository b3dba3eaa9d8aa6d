"""Export a small convolutional network for digits, untrained: python export_digits.py FOLDER"""

import sys

import keras
from keras import layers

keras.utils.set_random_seed(1)
model = keras.Sequential(
    [
        keras.Input((28, 28), dtype="float32", name="image"),
        layers.Reshape((28, 28, 1)),
        layers.Conv2D(16, 5, strides=2, activation="relu"),
        layers.Conv2D(32, 5, strides=2, activation="relu"),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dense(10),
    ]
)
model.export(f"{sys.argv[1]}/1", verbose=False)
