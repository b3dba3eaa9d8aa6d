"""Exports models of TensorFlow, each into a folder of its own beside the inputs and the program's answers."""

import os
import sys
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import oarlock

FOLDER = Path(sys.argv[1])
CHANCE = np.random.default_rng(3)


def keep(name, inputs, outputs):
    arrays = {f"in.{key}": one for key, one in inputs.items()}
    arrays |= {f"out.{key}": np.asarray(one) for key, one in outputs.items()}
    arrays = {key: one.astype(str) if one.dtype.kind in "OS" else one for key, one in arrays.items()}
    np.savez(FOLDER / f"{name}.npz", **arrays)


def digits():
    """As the examples have them: raw pixels in, scores out."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1), dtype="uint8", name="image"),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(4, 3, activation="gelu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )


def export_keras():
    model = digits()
    pixels = CHANCE.integers(0, 256, (5, 8, 8, 1)).astype("uint8")
    oarlock.current().report(12, total=12, loss=tf.constant(0.25), accuracy=0.5, note="text is no score")
    version = oarlock.export(model, kind="image", labels=map(str, range(10)), folder=FOLDER / "keras")
    assert version == FOLDER / "keras" / "1"
    keep("keras", {"image": pixels}, {"output_0": model(pixels)})
    model.export(FOLDER / "plain", verbose=False)  # without us: no version, no manifest
    keep("plain", {"image": pixels}, {"output_0": model(pixels)})


def export_as_another_worker():
    """All write, because saving is collective; only the leader leaves something."""
    os.environ.update(RANK="1", WORLD_SIZE="2")
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        assert not oarlock.current().is_chief
        assert oarlock.export(digits(), folder=FOLDER / "another") is None
        assert list(Path(scratch).iterdir()) == []
    tempfile.tempdir = None
    del os.environ["RANK"], os.environ["WORLD_SIZE"]


def export_tf_keras():
    first, second = (tf_keras.Input((3,), name=name) for name in ("first", "second"))
    model = tf_keras.Model([first, second], tf_keras.layers.Dense(2)(first * second))
    left, right = CHANCE.normal(size=(2, 4, 3)).astype("float32")
    oarlock.export(model, folder=FOLDER / "tf_keras")
    keep("tf_keras", {"first": left, "second": right}, {"output_0": model([left, right])})


class Words(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(self, text):
        return {"upper": tf.strings.upper(text, "utf-8"), "bytes": tf.strings.length(text)}


def export_text():
    words = np.array(["grüße", "", "two words"], dtype=object)
    version = oarlock.export(Words(), kind="text", folder=FOLDER / "text")
    assert not (version / "model.tflite").exists()
    keep("text", {"text": words}, {"upper": ["GRÜSSE", "", "TWO WORDS"], "bytes": [7, 0, 9]})


def export_function():
    weight = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @tf.function
    def double(x):
        return 2 * x @ weight

    x = CHANCE.normal(size=(3, 2)).astype("float32")
    oarlock.export(double, example={"x": x}, folder=FOLDER / "function")
    keep("function", {"x": x}, {"output_0": double(x)})


def export_signatures():
    """A server answers with the first; whoever loads the folder finds all."""
    weight, shift = tf.Variable([[1.0], [2.0]]), tf.Variable(5.0)
    rows = tf.TensorSpec([None, 2], tf.float32, name="x")

    @tf.function(input_signature=[rows])
    def summed(x):
        return {"sum": x @ weight}

    @tf.function(input_signature=[rows])
    def shifted(x):
        return {"shifted": x + shift}

    x = CHANCE.normal(size=(3, 2)).astype("float32")
    version = oarlock.export(summed, signatures={"shifted": shifted}, folder=FOLDER / "signatures")
    keep("signatures", {"x": x}, {"sum": summed(x)["sum"]})
    loaded = tf.saved_model.load(str(version)).signatures
    assert sorted(loaded) == ["serving_default", "shifted"]
    np.testing.assert_allclose(loaded["shifted"](x=x)["shifted"], x + 5)
    for name, function, words in (
        ("serving_default", shifted, "is taken"),
        ("plain", len, "make it a tf.function"),
        ("loose", tf.function(lambda x: x), "has no input_signature"),
    ):
        with pytest.raises(ValueError, match=words):
            oarlock.export(summed, signatures={name: function}, folder=FOLDER / "refused")
    with pytest.raises(ValueError, match=r"signatures= is for a tf\.Module"):
        oarlock.export(digits(), signatures={"shifted": shifted}, folder=FOLDER / "refused")


def export_archive():
    """Pictures of any size in, names out."""
    names = tf.constant(["dark", "bright"])

    def classify(images):
        light = tf.reduce_mean(tf.cast(images, tf.float32), axis=[1, 2, 3])
        return {"label": tf.gather(names, tf.cast(light > 127, tf.int32)), "light": light}

    archive = keras.export.ExportArchive()
    archive.track(tf.Module())
    archive.add_endpoint("serve", classify, [tf.TensorSpec((None, None, None, 1), tf.uint8)])
    oarlock.export(archive, kind="image", folder=FOLDER / "archive")
    images = np.stack([np.full((5, 7, 1), 10, "uint8"), np.full((5, 7, 1), 200, "uint8")])
    keep("archive", {"images": images}, {"label": ["dark", "bright"], "light": [10.0, 200.0]})


def refuse():
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    for model, words in (
        (unbuilt, "not built"),
        (tf.Module(), "serve or __call__"),
        (tf.function(abs), "example="),
    ):
        with pytest.raises(ValueError, match=words):
            oarlock.export(model, folder=FOLDER / "refused")
    assert list((FOLDER / "refused").iterdir()) == []


if __name__ == "__main__":
    export_keras()
    export_as_another_worker()
    export_tf_keras()
    export_text()
    export_function()
    export_signatures()
    export_archive()
    refuse()
