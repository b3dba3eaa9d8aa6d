"""Three ways to run the same steps: alone, on workers that add up their gradients, under parameter servers.

Each training process holds the pairs in memory and gets only the indices for a step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import oarlock

Step = Callable[..., tf.Tensor]


def default() -> str:
    """The strategy that fits the roles of the run."""
    roles = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec().as_dict()
    return "ps" if "ps" in roles else "mirrored" if oarlock.current().world > 1 else "one"


def connect(name: str) -> Alone:
    return {"one": Alone, "mirrored": Mirrored, "ps": ParameterServers}[name]()


class Alone:
    def __init__(self) -> None:
        self.scope: Callable[[], Any] = contextlib.nullcontext
        self.losses: list[Any] = []  # of the steps since the last `loss()`: [sum over words, number of words]

    def prepare(self, pairs: Callable[[], tf.data.Dataset], step: Step) -> None:
        """`pairs()` is a dataset with one element: all of them. `step` trains on some of these."""
        bodies, titles = pairs().get_single_element()
        self.step = tf.function(lambda chosen: self.run(step, (bodies, titles, chosen)))

    def run(self, step: Step, arguments: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return step(*arguments)

    def train(self, batches: oarlock.data.Batches, step: int) -> None:
        self.losses.append(self.step(tf.constant(batches.mine(step))))

    def loss(self) -> float:
        """The mean over the words of the steps since the last call. Waits until they are done."""
        total, count = sum(tf.convert_to_tensor(loss).numpy() for loss in self.losses)
        self.losses = []
        return float(total / count)


class Mirrored(Alone):
    """All workers run each step together, each on a part of the batch, and have the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self.scope = self.strategy.scope

    def run(self, step: Step, arguments: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return self.strategy.reduce("SUM", self.strategy.run(step, arguments), axis=None)


class ParameterServers(Alone):
    """The chief hands out steps; a free worker takes the next one, reads the weights from the servers and
    sends them its gradient, without waiting for the others. A lost worker's step goes to another one."""

    def __init__(self) -> None:
        super().__init__()
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self.scope = self.strategy.scope

    def prepare(self, pairs: Callable[[], tf.data.Dataset], step: Step) -> None:
        # Each worker reads the shards once, from its own disk; every `next` is the same tensor, not a copy.
        self.everything = iter(self.coordinator.create_per_worker_dataset(lambda: pairs().cache().repeat()))
        self.step = tf.function(lambda pairs, chosen: self.strategy.run(step, (*next(pairs), chosen)))

    def train(self, batches: oarlock.data.Batches, step: int) -> None:
        arguments = (self.everything, tf.constant(batches.indices(step)))
        self.losses.append(self.coordinator.schedule(self.step, arguments))

    def loss(self) -> float:
        self.coordinator.join()
        self.losses = [loss.fetch() for loss in self.losses]
        return super().loss()


def serve() -> None:
    """A worker or a parameter server under a chief: runs what it is sent until the run ends."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()
