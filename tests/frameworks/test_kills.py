"""A task killed in the middle of a step restarts the gang on the first try, for every framework."""

from __future__ import annotations

from pathlib import Path

import pytest
from gangs import Gang

TORCH = """
import torch, torch.distributed as dist, oarlock
me = oarlock.current()
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step():
    loss = model(torch.ones(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""

TENSORFLOW = """
import keras, tensorflow as tf, oarlock
me = oarlock.current()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
@tf.function
def replicated():
    def update():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(tf.ones((8, 4))) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss
    return strategy.reduce("SUM", strategy.run(update), axis=None)
def step():
    return float(replicated())
"""

JAX = """
import jax, jax.numpy as jnp, oarlock
from jax.experimental import multihost_utils
me = oarlock.current()
jax.distributed.initialize()
def step():
    return float(multihost_utils.process_allgather(jnp.ones(1)).sum())
"""

LOOP = """
steps = 10**9 if me.generation == 1 else 20
for number in range(1, steps + 1):
    me.report(number, loss=step())
"""


@pytest.mark.parametrize("victim", ["worker-0", "worker-1"])
@pytest.mark.parametrize(
    ("framework", "program"), [("torch", TORCH), ("tensorflow", TENSORFLOW), ("jax", JAX)]
)
def test_a_killed_task_restarts_the_gang_on_the_first_try(
    home: Path, tmp_path: Path, framework: str, program: str, victim: str
) -> None:
    gang = Gang(tmp_path / "job", program + LOOP)
    gang.until_step(20, task=victim)
    assert gang.of("ready")[0]["warm"], "the framework was imported before the fork"
    assert gang.state.generation == 1
    gang.kill(victim)
    state = gang.end()
    [restart] = gang.of("restart")
    assert (restart["task"], restart["reason"]) == (victim, "killed by SIGKILL"), gang.told()
    assert (state.state, state.generation) == ("succeeded", 2), gang.told()
    assert {task.step for task in state.tasks.values()} == {20}
