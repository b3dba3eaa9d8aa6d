"""Models, optimizers and variables of Keras 3, TensorFlow and tf_keras."""

from __future__ import annotations

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from round_trip import go_through, refused, through, unkeepable

X = np.random.default_rng(0).normal(size=(16, 5)).astype("float32")


def model(k=keras, wide=8):
    return k.Sequential(
        [
            k.Input((5,)) if k is keras else k.layers.InputLayer((5,)),
            k.layers.Dense(wide, activation="relu"),
            k.layers.BatchNormalization(),
            k.layers.Dropout(0.5),
            k.layers.Dense(1),
        ]
    )


def step(net, optimizer):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(net(X, training=True) ** 2)
    grads = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(grads, net.trainable_variables))
    return float(loss)


def fresh(make=lambda: keras.optimizers.Adam(0.01)):
    net, optimizer = model(), make()
    optimizer.build(net.trainable_variables)
    return {"net": net, "optimizer": optimizer}


def numbers(thing):
    found = thing.variables() if callable(thing.variables) else thing.variables
    return [np.asarray(v).tobytes() for v in found]


def case_dropout_batch_norm_and_adam_go_on_bit_for_bit():
    things = fresh()
    for _ in range(3):
        step(**things)
    after = through(things, fresh())
    for name in things:
        assert numbers(after[name]) == numbers(things[name])
    assert [step(**after) for _ in range(3)] == [step(**things) for _ in range(3)]
    for name in things:
        assert numbers(after[name]) == numbers(things[name])


def case_schedules_and_other_optimizers():
    def make():
        return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10), momentum=0.9)

    things = fresh(make)
    step(**things)
    after = through(things, fresh(make))
    assert [step(**after) for _ in range(3)] == [step(**things) for _ in range(3)]


def case_a_model_of_half_precision():
    keras.config.set_dtype_policy("bfloat16")
    try:
        net, other = model(), model()
    finally:
        keras.config.set_dtype_policy("float32")
    through({"net": net}, {"net": other})
    assert numbers(other) == numbers(net)


def case_metrics_and_seed_generators():
    mean, seeds = keras.metrics.Mean(), keras.random.SeedGenerator(3)
    mean.update_state([1.0, 2.5])
    keras.random.normal((2,), seed=seeds)
    other = keras.random.SeedGenerator(3)
    after = through(
        {"mean": mean, "state": seeds.state}, {"mean": keras.metrics.Mean(), "state": other.state}
    )
    assert float(after["mean"].result()) == 1.75
    assert (keras.random.normal((2,), seed=other) == keras.random.normal((2,), seed=seeds)).numpy().all()


def case_variables_of_tensorflow():
    before = {
        "w": tf.Variable(np.arange(6.0).reshape(2, 3)),
        "n": tf.Variable(2**40, dtype=tf.int64),
        "half": tf.Variable([1.5], dtype=tf.bfloat16),
        "none": tf.Variable(tf.zeros((0, 3))),
        "flag": tf.Variable(True),
    }
    after = {name: tf.Variable(tf.zeros_like(v)) for name, v in before.items()}
    own = dict(after)
    through(before, after)
    for name, variable in before.items():
        assert after[name] is own[name]
        assert own[name].numpy().tobytes() == variable.numpy().tobytes()


def case_variables_in_a_dict_are_changed_in_place():
    mine = {"a": tf.Variable(0.0), "b": [keras.Variable(np.zeros(2))]}
    own = mine["a"]
    after = through({"x": {"a": tf.Variable(3.0), "b": [keras.Variable(np.ones(2))]}}, {"x": mine})["x"]
    assert after["a"] is own
    assert float(own) == 3
    assert after["b"][0].numpy().tolist() == [1, 1]


def case_a_module_of_tensorflow():
    class Layer(tf.Module):
        def __init__(self, value):
            self.w = tf.Variable([value, value])

    mine = Layer(0.0)
    through({"m": Layer(2.0)}, {"m": mine})
    assert mine.w.numpy().tolist() == [2, 2]


def case_tf_keras():
    def made():
        net, optimizer = model(tf_keras), tf_keras.optimizers.Adam(0.01)
        optimizer.build(net.trainable_variables)
        return {"net": net, "optimizer": optimizer}

    things = made()
    step(**things)
    after = through(things, made())
    for name in things:
        assert numbers(after[name]) == numbers(things[name])


def case_mismatches_are_said_in_a_sentence():
    things = fresh()
    why = refused(things, {"net": model(wide=9), "optimizer": things["optimizer"]})
    assert why.startswith("net: "), why
    assert "kernel had shape (5, 8) and has (5, 9) now" in why, why
    unbuilt = {"net": model(), "optimizer": keras.optimizers.Adam()}
    why = refused(things, unbuilt)
    assert why.endswith(
        "variables and has 2 now: build it first, for example by optimizer.build(model.trainable_variables)"
    ), why
    why = refused({"o": things["optimizer"]}, {"o": tf_keras.optimizers.Adam()})
    assert "build it first" in why, why
    small = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    why = refused({"net": things["net"]}, {"net": small})
    assert why.startswith("net had 9 variables and has 2 now"), why
    why = refused({"v": tf.Variable([1.0, 2.0])}, {"v": tf.Variable([1.0])})
    assert "had shape (2,) and has (1,) now" in why, why


def case_what_cannot_be_kept_is_named():
    told = unkeepable(tf.Variable(["text"]))
    assert told.endswith("which cannot be saved"), told


if __name__ == "__main__":
    go_through(globals())
