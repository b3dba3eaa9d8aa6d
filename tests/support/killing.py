"""Killing tasks of a live gang at random moments, with proof that each kill landed."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from tests.support.gangs import Gang

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

PROGRAMS = {"torch": TORCH, "tensorflow": TENSORFLOW, "jax": JAX}
STEPPING = """
number = 0
while True:
    number += 1
    me.report(number, loss=step())
"""


def stepping_gang(folder: Path, framework: str) -> Gang:
    """Two workers that step until they are killed; budget for any number of kills."""
    return Gang(folder, PROGRAMS[framework] + STEPPING, limits={"restarts": 1_000_000, "stall": "60s"})


def kill_at_random(gang: Gang, kills: int, chance: random.Random) -> list[float]:
    """Seconds from each kill to the next generation's first step of the leader."""
    times = []
    for number in range(kills):
        before = gang.state.generation or 1
        gang.until_step(1, generation=before)
        gang.until_step(1, task="worker-1", generation=before)
        _step_on(gang, chance.uniform(0.0, 0.3))
        victim = f"worker-{chance.randrange(2)}"
        killed_at = time.time()
        os.kill(gang.pid(victim), signal.SIGKILL)
        gang.until_step(1, generation=before + 1)
        first = next(
            event for event in gang.of("report", generation=before + 1) if event["task"] == "worker-0"
        )
        times.append(first["t"] - killed_at)
        _prove(gang, number + 1, before, victim)
    return times


def _step_on(gang: Gang, seconds: float) -> None:
    """A random moment of training, not always the first."""
    until = time.monotonic() + seconds
    gang.until(lambda _: time.monotonic() >= until, "moment")


def _prove(gang: Gang, kills: int, generation: int, victim: str) -> None:
    """The kill landed, in a step, and one restart was enough."""
    restarts = gang.of("restart")
    assert len(restarts) == kills, f"{len(restarts)} restarts for {kills} kills: {gang.told()}"
    assert (restarts[-1]["task"], restarts[-1]["reason"]) == (victim, "killed by SIGKILL"), gang.told()
    assert gang.state.generation == generation + 1
