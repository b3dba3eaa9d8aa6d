"""What a program may do with Keras 3, in small cases: run alone, or by every worker of a cluster (TF_CONFIG).

    python keras_cases.py RESULT CASE...

A case returns numbers to compare with those of another run. What it said in warnings and how it was
refused is kept beside them. `install` among the cases corrects Keras there and then, `mirrored` makes
the cases after it use two replicas in one process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any, Callable


def install() -> None:
    from oarlock.training.keras import correction

    correction.install()


if "install" not in sys.argv:
    install()  # before anybody imports Keras, as the launcher does

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

ROWS, BATCH = 320, 32
_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 6)).astype("float32")
Y = (X @ _random.normal(size=(6, 3))).argmax(1).astype("int64")
WEIGHT = np.linspace(0.1, 3.0, ROWS).astype("float32")

strategy: Any = tf.distribute.get_strategy()
Numbers = dict[str, Any]


def main(result: str, *cases: str) -> None:
    global strategy
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    cpu = tf.config.list_physical_devices("CPU")[0]
    if "mirrored" in cases:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    results: dict[str, Numbers] = {}
    prefix = ""
    for case in cases:
        if case == "install":
            install()
            prefix = "corrected "
        elif case == "mirrored":
            strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
            prefix = "mirrored "
        else:
            print("case", case, flush=True)
            results[prefix + case] = run(globals()[case])
    Path(result).write_bytes(pickle.dumps(results))


def run(case: Callable[[], Numbers]) -> Numbers:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            numbers = case()
        except ValueError as refusal:
            numbers = {"refused": str(refusal)}
    numbers["said"] = [str(w.message) for w in caught if str(w.message).startswith("oarlock")]
    return numbers


def compiled(*layers: str, scope: bool = True, **options: Any) -> Any:
    """A model of fixed first weights, compiled inside the strategy's scope."""
    keras.utils.set_random_seed(1)
    made = {
        "dense": lambda: keras.layers.Dense(16, activation="tanh"),
        "dropout": lambda: keras.layers.Dropout(0.5, seed=3),
        "norm": lambda: keras.layers.BatchNormalization(name="norm"),
        "synchronized": lambda: keras.layers.BatchNormalization(synchronized=True),
    }
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((6,)), *(made[name]() for name in layers or ["dense"]), keras.layers.Dense(3)]
        )
        options.setdefault("optimizer", lambda: keras.optimizers.SGD(0.3))
        options.setdefault("metrics", lambda: ["accuracy"])
        options.setdefault("loss", lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        if scope:
            compile_(model, options)
    if not scope:
        compile_(model, options)
    return model


def compile_(model: Any, options: dict[str, Any]) -> None:
    model.compile(**{name: made() if callable(made) else made for name, made in options.items()})


def numbers(model: Any, history: Any, **more: Any) -> Numbers:
    return {
        "weights": np.concatenate([weight.ravel() for weight in model.get_weights()]),
        "iterations": int(model.optimizer.iterations.numpy()),
        **{name: np.array(values) for name, values in history.history.items()},
        **more,
    }


def trained(model: Any, rows: int = ROWS, epochs: int = 2, **given: Any) -> Numbers:
    return numbers(model, on_arrays(model, rows, epochs, **given))


def on_arrays(model: Any, rows: int = ROWS, epochs: int = 2, **given: Any) -> Any:
    given.setdefault("shuffle", False)
    return model.fit(X[:rows], Y[:rows], batch_size=BATCH, epochs=epochs, verbose=0, **given)


def dataset(rows: int = ROWS) -> Any:
    return tf.data.Dataset.from_tensor_slices((X[:rows], Y[:rows])).batch(BATCH)


def each_worker_its_own(sizes: Callable[[int], list[int]]) -> Any:
    """Global batches of 32 cut into the given sizes, one for each worker; endless, and of fixed size."""

    def own(context: Any) -> Any:
        cut = np.cumsum([0, *sizes(context.num_input_pipelines)])
        mine = slice(cut[context.input_pipeline_id], cut[context.input_pipeline_id + 1])
        x, y = X.reshape(-1, BATCH, 6)[:, mine], Y.reshape(-1, BATCH)[:, mine]
        return tf.data.Dataset.from_tensor_slices((x, y)).repeat()

    if strategy.num_replicas_in_sync == 1:
        return dataset().repeat()
    return strategy.distribute_datasets_from_function(own)


# The cases.


def arrays() -> Numbers:
    model = compiled()
    before = np.concatenate([weight.ravel() for weight in model.get_weights()])
    history = on_arrays(model, epochs=5, validation_data=(X[:101], Y[:101]))
    evaluated = np.array(model.evaluate(X[:101], Y[:101], batch_size=22, verbose=0))
    predicted = model.predict(X[:101], batch_size=22, verbose=0)
    return numbers(model, history, before=before, evaluated=evaluated, predicted=predicted)


def predicted_without_compiling() -> Numbers:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    return {"predicted": model.predict(X[:101], batch_size=22, verbose=0)}


def tf_data() -> Numbers:
    model = compiled()
    return numbers(model, model.fit(dataset(), epochs=2, validation_data=dataset(101), verbose=0))


def tf_data_sharded_by_data() -> Numbers:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    model = compiled()
    return numbers(model, model.fit(dataset().with_options(options), epochs=2, verbose=0))


def own_batches() -> Numbers:
    model = compiled()
    data = each_worker_its_own(lambda workers: [BATCH // workers] * workers)
    return numbers(model, model.fit(data, epochs=2, steps_per_epoch=10, verbose=0))


def own_batches_of_different_size() -> Numbers:
    model = compiled()
    data = each_worker_its_own(lambda workers: [20] + [12 // (workers - 1)] * (workers - 1))
    return numbers(model, model.fit(data, epochs=2, steps_per_epoch=10, verbose=0))


def own_batches_with_class_weight() -> Numbers:
    model = compiled(weighted_metrics=["accuracy"], metrics=None)
    data = each_worker_its_own(lambda workers: [BATCH // workers] * workers)
    class_weight = {0: 0.5, 1: 2.0, 2: 1.0}
    return numbers(model, model.fit(data, epochs=2, steps_per_epoch=10, class_weight=class_weight, verbose=0))


def shuffled() -> Numbers:
    return trained(compiled(), shuffle=True)


def shuffled_without_a_seed() -> Numbers:
    model = compiled()
    tf.random.set_seed(None)
    return trained(model, 64, 1, shuffle=True)


def uneven_250() -> Numbers:
    return trained(compiled(), 250)


def uneven_257() -> Numbers:
    return trained(compiled(optimizer=lambda: keras.optimizers.Adam(0.01)), 257)


def uneven_everything() -> Numbers:
    """Regularizers, two outputs of different weight, sample weights and a synchronized normalization."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        x = keras.Input((6,))
        h = keras.layers.Dense(8, kernel_regularizer="l2", activity_regularizer="l2")(x)
        h = keras.layers.BatchNormalization(synchronized=True)(h)
        model = keras.Model(
            x, {"a": keras.layers.Dense(3, name="a")(h), "b": keras.layers.Dense(1, name="b")(h)}
        )
        model.compile(
            keras.optimizers.AdamW(0.01, weight_decay=0.1),
            {"a": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "b": "mse"},
            loss_weights={"a": 1.0, "b": 0.3},
            metrics={"a": ["accuracy"]},
        )
    y = {"a": Y[:257], "b": X[:257, :1]}
    history = model.fit(
        X[:257], y, sample_weight=WEIGHT[:257], batch_size=BATCH, epochs=2, shuffle=False, verbose=0
    )
    return numbers(model, history)


def uneven_own_train_step() -> Numbers:
    class Own(keras.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(x, y, y_pred)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return self.compute_metrics(x, y, y_pred)

    keras.utils.set_random_seed(1)
    with strategy.scope():
        x = keras.Input((6,))
        model = Own(x, keras.layers.Dense(3)(x))
        model.compile(
            "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
        )
    return trained(model, 257)


def normalized_with_an_empty_worker() -> Numbers:
    return trained(compiled("dense", "norm"), 257)


def unknown_length() -> Numbers:
    model = compiled("dense", "dropout", optimizer=lambda: keras.optimizers.Nadam(0.01))
    data = tf.data.Dataset.from_tensor_slices((X[:256], Y[:256])).batch(BATCH, drop_remainder=True)
    history = model.fit(data.filter(lambda x, y: True), epochs=2, verbose=0)
    return numbers(model, history, seed=int(model.layers[1].seed_generator.state.numpy()[1]))


def unknown_length_uneven() -> Numbers:
    model = compiled()
    return numbers(model, model.fit(dataset(257).filter(lambda x, y: True), epochs=2, verbose=0))


def several_steps_per_execution() -> Numbers:
    model = compiled(steps_per_execution=4)
    history = model.fit(dataset(), epochs=2, verbose=0)
    return numbers(model, history, predicted=model.predict(X, batch_size=30, verbose=0))


def xla() -> Numbers:
    return trained(compiled(jit_compile=True))


def clipped() -> Numbers:
    return trained(compiled(optimizer=lambda: keras.optimizers.SGD(0.3, global_clipnorm=0.05)))


def loss_of_one_number() -> Numbers:
    def mean(y: Any, y_pred: Any) -> Any:
        labels = tf.reshape(tf.cast(y, tf.int32), [-1])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y_pred))

    return trained(compiled(loss=lambda: mean), 257)


def loss_over_sample_weights() -> Numbers:
    loss = {"from_logits": True, "reduction": "mean_with_sample_weight"}
    model = compiled(loss=lambda: keras.losses.SparseCategoricalCrossentropy(**loss))
    return trained(model, 257, sample_weight=WEIGHT[:257])


def masked() -> Numbers:
    words = np.random.default_rng(3).integers(1, 9, size=(257, 7))
    words[np.arange(257)[:, None] % 6 < np.arange(7)[None, :]] = 0  # sentences of 1 to 6 words
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((7,)), keras.layers.Embedding(9, 5, mask_zero=True)])
        model.add(keras.layers.Dense(9))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.3), loss, metrics=["accuracy"])
    return numbers(
        model,
        model.fit(
            words, words, batch_size=BATCH, epochs=2, validation_data=(words, words), shuffle=False, verbose=0
        ),
    )


def overflow_on_one_worker() -> Numbers:
    """A row of the third batch, held by the first worker, that makes the gradients infinite."""
    model = compiled(optimizer=lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.3)))
    x = X.copy()
    x[2 * BATCH] = np.inf
    model.fit(x, Y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    return {"weights": weights, "scale": float(model.optimizer.dynamic_scale.numpy())}


def compiled_outside_the_scope() -> Numbers:
    return trained(compiled(scope=False, optimizer="adam"), 257)


def sharding_switched_off() -> Numbers:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return numbers(model := compiled(), model.fit(dataset().with_options(options), verbose=0))


def distributed_with_sharding_switched_off() -> Numbers:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = strategy.experimental_distribute_dataset(dataset().with_options(options))
    return numbers(model := compiled(), model.fit(data, verbose=0))


def validation_sharding_switched_off() -> Numbers:
    """To be refused before the first step, not when the first epoch is over."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    model = compiled()
    too_late = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: sys.exit("trained"))
    validation = dataset().with_options(options)
    return numbers(model, model.fit(dataset(), validation_data=validation, callbacks=[too_late], verbose=0))


def gradient_accumulation() -> Numbers:
    return trained(compiled(optimizer=lambda: keras.optimizers.SGD(0.3, gradient_accumulation_steps=2)))


def optimizer_from_outside_the_scope() -> Numbers:
    made_here = keras.optimizers.SGD(0.3, name="mine")
    return trained(compiled(optimizer=lambda: made_here))


def metric_from_outside_the_scope() -> Numbers:
    made_here = keras.metrics.SparseCategoricalAccuracy(name="mine")
    return trained(compiled(metrics=lambda: [made_here]))


def backed_up_and_interrupted() -> Numbers:
    """With a folder of its own for each worker's backup, as on machines that share none, and one file for all
    of them to keep the model in."""
    rank = strategy.cluster_resolver.task_id if "TF_CONFIG" in os.environ else 0
    folder = Path(sys.argv[1]).parent
    began: list[int] = []

    def interrupt(epoch: int, logs: Any) -> None:
        if len(began) == 2:
            raise KeyboardInterrupt

    for epochs in (4, 4):
        model = compiled(optimizer=lambda: keras.optimizers.Adam(0.1))
        callbacks = [
            keras.callbacks.BackupAndRestore(folder / f"backup-{rank}", delete_checkpoint=False),
            keras.callbacks.ModelCheckpoint(str(folder / "kept-{epoch}.keras")),
            keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: began.append(epoch)),
            keras.callbacks.LambdaCallback(on_epoch_end=interrupt),
        ]
        with contextlib.suppress(KeyboardInterrupt):
            history = model.fit(dataset(), epochs=epochs, callbacks=callbacks, verbose=0)
    assert began == [0, 1, 2, 3], began
    assert rank == 0 or not (folder / f"backup-{rank}").exists()
    if rank == 0:
        kept = keras.models.load_model(folder / "kept-4.keras")
        assert np.array_equal(kept.get_weights()[0], model.get_weights()[0])
    return numbers(model, history)


def legacy_keras() -> Numbers:
    import tf_keras

    tf_keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [tf_keras.layers.Dense(16, activation="tanh", input_shape=(6,)), tf_keras.layers.Dense(3)]
        model = tf_keras.Sequential(layers)
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf_keras.optimizers.legacy.SGD(0.3), loss, metrics=["accuracy"])
    return numbers(model, model.fit(dataset(), epochs=2, verbose=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
