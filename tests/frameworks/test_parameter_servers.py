"""Parameter servers as users meet them: tasks of every role are killed, and no more is lost than promised."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from oarlock.checkpoints.store import Store
from oarlock.engines.local import local_engine
from tests.support.gangs import Gang
from tests.support.soaking import cases, moments, only_in_soak

SERVE = """
import tensorflow as tf, oarlock
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    ).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
"""
LOOP = (
    SERVE
    + """
import keras
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    count = tf.Variable(0, dtype=tf.int64)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.001)
    optimizer.build(model.trainable_variables)

def batches():
    return tf.data.Dataset.from_tensors(tf.ones((8, 4))).repeat()

@tf.function
def step(iterator):
    def update(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        count.assign_add(1)
        return loss
    return strategy.run(update, args=(next(iterator),))

data = iter(coordinator.create_per_worker_dataset(batches))
state = oarlock.State(count=count, model=model, optimizer=optimizer)
print("restored", int(count), int(optimizer.iterations), state.step)
for number in state.steps(1_000_000, save="1s"):
    state.report(loss=coordinator.schedule(step, args=(data,)))
"""
)
FIT = (
    SERVE
    + """
import keras, numpy as np
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.001), "mse")
callbacks = oarlock.keras.callbacks(model, save="1s")
count = int(model.optimizer.iterations)
print("restored", count, count, callbacks.step)
data = tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.zeros((8, 1)))).repeat()
model.fit(
    data, steps_per_epoch=100, epochs=10_000, initial_epoch=callbacks.epoch, callbacks=callbacks, verbose=0
)
"""
)
PROGRAMS = {"an own loop": LOOP, "fit of Keras 3": FIT}
ROLES = {"chief": 1, "worker": 2, "ps": 2}


# training/test_parameter_servers.py has such a loop, too.
@pytest.mark.parametrize("program", cases(["fit of Keras 3"], soak=["an own loop"]))
def test_who_is_killed_costs_no_more_than_the_steps_since_the_last_checkpoint(
    home: Path, tmp_path: Path, program: str
) -> None:
    gang = Gang(tmp_path / "job", PROGRAMS[program], roles=ROLES, limits={"restarts": 1_000_000})
    store = Store(gang.run.spec().folders["checkpoints"])
    chance = random.Random("servers")
    victims = [name for name in ("worker-1", "chief-0", "ps-0") for _ in range(moments(1))]
    chance.shuffle(victims)
    for victim in victims:
        _train_on(gang, chance.randrange(5, 30))
        gang.until(lambda _: store.checkpoints(), "a checkpoint by the clock, which the chief alone decides")
        saved, generation = max(each.step for each in store.checkpoints()), gang.state.generation
        kills = len(gang.of("restart"))
        gang.kill(victim)
        gang.until(partial(_has_restarted, kills + 1), f"restart of {victim}")
        seen = len(gang.events)
        _train_on(gang, 5)
        assert gang.of("restart")[-1].get("alone", False) == (victim != "ps-0")
        assert gang.state.generation == generation + (victim == "ps-0")
        first = next(event["step"] for event in gang.events[seen:] if event["kind"] == "report")
        assert first > saved, gang.told()
    restored = [[int(word) for word in line.split()[2:]] for line in gang.lines if "| restored" in line]
    assert len(restored) > 2 * moments(1)
    for count, iterations, step in restored:
        # TensorFlow runs a step again that a lost worker may have done: no step is lost, few are done twice.
        assert step <= count <= step + moments(1), restored
        assert step <= iterations <= step + moments(1), restored
    local_engine.stop(gang.run, now=False)
    assert gang.end().state == "stopped", gang.told()
    last = gang.of("report")[-1]
    assert last["loss"] >= 0, "what a worker returned"
    assert max(each.step for each in store.checkpoints()) >= last["step"], (
        "the last step is saved: a stop loses none"
    )


def _has_restarted(times: int, gang: Gang) -> bool:
    return len(gang.of("restart")) >= times


def _train_on(gang: Gang, steps: int) -> None:
    """Until the chief has reported that many steps more, from wherever it is."""
    seen = len(gang.events)

    def done(gang: Gang) -> bool:
        now = [event["step"] for event in gang.events[seen:] if event["kind"] == "report"]
        return bool(now) and now[-1] - now[0] >= steps

    gang.until(done, f"{steps} steps of the chief")


OLD_FIT = (
    SERVE
    + """
import os, signal, tf_keras
class Rows(tf_keras.metrics.Sum):
    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(tf.shape(y_true)[0])
with strategy.scope():
    model = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.Adam(0.01), "mse", metrics=[Rows(name="rows")])
class Killed(tf_keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if callbacks.step == 0 and callbacks.reached == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        callbacks.reached += 1
callbacks = oarlock.keras.callbacks(model, [Killed()], save=5)
callbacks.reached = callbacks.step
data = tf_keras.utils.experimental.DatasetCreator(
    lambda context: tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.zeros((8, 1)))).repeat()
)
history = model.fit(
    data, steps_per_epoch=8, epochs=3, initial_epoch=callbacks.epoch, callbacks=callbacks, verbose=0
)
print("from", callbacks.step, "to", int(model.optimizer.iterations), "with", history.history["rows"])
"""
)


@only_in_soak  # others train with tf_keras, and resume a fit
def test_fit_of_tf_keras_resumes_in_the_middle_of_an_epoch(home: Path, tmp_path: Path) -> None:
    gang = Gang(tmp_path / "job", OLD_FIT, roles={**ROLES, "worker": 1, "ps": 1})
    assert gang.end().state == "succeeded", gang.told()
    # Three epochs of 8 steps of 8 rows; the second was cut in two.
    assert "chief-0| from 10 to 24 with [64.0, 64.0]" in gang.lines
    assert [event["task"] for event in gang.of("restart")] == ["chief-0"]
    assert gang.of("report")[-1]["step"] == 24
