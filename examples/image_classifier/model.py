"""The network, its moving average, and the export.

A small residual network: a strided convolution, then stages that each halve the picture and double the
channels. `width` and `blocks` scale it: 16 and 1 train in minutes on two cores, 64 and 3 need a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import keras
import tensorflow as tf
from keras import layers

import oarlock

STAGES = 3


def build(
    shape: Sequence[int], classes: int, width: int, blocks: int, synchronized: bool = False
) -> keras.Model:
    """From raw pixels (0 to 255) to a score for each class. `synchronized`: normalize over all workers."""

    def normalized(x: tf.Tensor) -> tf.Tensor:
        return layers.BatchNormalization(momentum=0.9, synchronized=synchronized)(x)

    def convolved(x: tf.Tensor, channels: int, size: int, strides: int = 1) -> tf.Tensor:
        return normalized(layers.Conv2D(channels, size, strides, padding="same", use_bias=False)(x))

    images = keras.Input(shape, dtype="uint8")
    x = layers.Rescaling(1 / 127.5, offset=-1)(images)  # inside the model, so that servers need not know
    x = layers.ReLU()(convolved(x, width, size=5, strides=2))
    for stage in range(STAGES):
        channels = width * 2**stage
        for block in range(blocks):
            strides = 2 if stage > 0 and block == 0 else 1
            shortcut = x if x.shape[-1] == channels else convolved(x, channels, size=1, strides=strides)
            x = layers.ReLU()(convolved(x, channels, size=3, strides=strides))
            x = layers.ReLU()(layers.Add()([convolved(x, channels, size=3), shortcut]))
    return keras.Model(images, layers.Dense(classes)(layers.GlobalAveragePooling2D()(x)))


def move_average(averaged: keras.Model, model: keras.Model, decay: tf.Tensor) -> None:
    """Move each variable of `averaged` toward that of `model`: a smoother model than any single step's."""
    for average, variable in zip(averaged.variables, model.variables):
        if average.dtype.startswith("float"):
            average.assign(decay * average + (1 - decay) * variable)


def export(model: keras.Model, labels: Sequence[str]) -> Path | None:
    """A SavedModel that takes raw pictures of any size and returns class names and probabilities."""
    height, width, channels = model.input_shape[1:]
    names = tf.constant(labels)

    def classify(images: tf.Tensor) -> dict[str, tf.Tensor]:
        resized = tf.image.resize(tf.cast(images, tf.float32), (height, width), antialias=True)
        pixels = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
        probabilities = tf.nn.softmax(model(pixels, training=False))
        return {"label": tf.gather(names, tf.argmax(probabilities, axis=-1)), "probabilities": probabilities}

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", classify, [tf.TensorSpec((None, None, None, channels), tf.uint8)])
    return oarlock.export(archive, kind="image", labels=labels)
