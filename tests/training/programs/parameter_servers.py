"""400 steps, counted by two workers on one parameter server; then some fits, each as in a single process too.

python parameter_servers.py RESULT SEEDS     with TF_CONFIG, for each task
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import oarlock.training.keras.correction

oarlock.training.keras.correction.install()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


class Rows(keras.metrics.Metric):
    """Counts the rows; reads, adds and writes back, as a user's metric may."""

    def __init__(self) -> None:
        super().__init__(name="rows")
        self.count = self.add_weight(shape=(), initializer="zeros", name="count")

    def update_state(self, y: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.count.assign(self.count + tf.cast(tf.shape(y)[0], "float32"))

    def result(self) -> Any:
        return self.count


def fitted(seed: int, strategy: Any = None) -> dict[str, Any]:
    keras.utils.set_random_seed(seed)
    rows = np.random.default_rng(seed)
    x = rows.normal(size=(197, 6)).astype("float32")
    y = (x @ rows.normal(size=(6, 3))).argmax(1)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adagrad(0.2), loss, metrics=["accuracy", Rows()])
    began: list[int] = []
    noting = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: began.append(batch))
    history = model.fit(x, y, batch_size=10, epochs=4, validation_data=(x, y), callbacks=[noting], verbose=0)
    return {
        **history.history,
        "steps": len(began),
        "iterations": int(model.optimizer.iterations.numpy()),
        "evaluated": model.evaluate(x, y, verbose=0),
        "predicted": float((model.predict(x, verbose=0).argmax(1) == y).mean()),
    }


def main(result: str, seeds: int) -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        ).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.set_weights([np.zeros((1, 1))])
        model.compile(keras.optimizers.SGD(1.0), "mse")
        model.optimizer.build(model.trainable_variables)

    @tf.function
    def step() -> Any:
        strategy.run(
            lambda: model.optimizer.apply_gradients([(tf.ones((1, 1)), model.trainable_variables[0])])
        )

    for _ in range(400):
        coordinator.schedule(step)
    coordinator.join()
    found = {
        "iterations": int(model.optimizer.iterations.numpy()),
        "weight": float(model.get_weights()[0][0, 0]),
    }
    found["fits"] = [{"alone": fitted(seed), "served": fitted(seed, strategy)} for seed in range(seeds)]
    Path(result).write_bytes(pickle.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # the coordinator's threads would wait for the servers, which never end


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
