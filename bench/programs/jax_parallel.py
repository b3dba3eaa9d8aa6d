"""Data parallel JAX over processes: `jax.distributed.initialize()` finds its peers by itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from marks import Marks, arguments

given = arguments()
jax.distributed.initialize()
marks = Marks(given, jax.process_index())
mesh = Mesh(np.array(jax.devices()), ("data",))
split, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())


def loss_of(weights: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.mean((x @ weights) ** 2)


@jax.jit
def train(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, gradient = jax.value_and_grad(loss_of)(weights, x)
    return weights - 0.01 * gradient, loss


x = jax.make_array_from_process_local_data(split, np.ones((64, 64), np.float32))
weights = jax.make_array_from_process_local_data(everywhere, np.ones((64, 1), np.float32))
for _ in marks.steps(given.steps):
    weights, loss = train(weights, x)
    loss.block_until_ready()
