"""JAX in one process, with a step that takes more than a second to compile, as those of real networks do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from marks import Marks, arguments

_LAYERS, _WIDTH = 8, 64

given = arguments()
marks = Marks(given, 0)


def block(weights: jax.Array, x: jax.Array) -> jax.Array:
    """Attention and a layer of its own, each on normalized values."""
    query, key, value, up = ((normalized(x) @ one) for one in weights)
    scores = jax.nn.softmax(query @ key.T / _WIDTH**0.5)
    return x + scores @ value + jax.nn.gelu(up)


def normalized(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def loss_of(layers: list[jax.Array], x: jax.Array) -> jax.Array:
    for weights in layers:
        x = block(weights, x)
    return jnp.mean(x**2)


@jax.jit
def train(layers: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    gradients = jax.grad(loss_of)(layers, x)
    return [weights - 0.01 * gradient for weights, gradient in zip(layers, gradients)]


keys = jax.random.split(jax.random.key(0), _LAYERS)
x, layers = jnp.ones((64, _WIDTH)), [jax.random.normal(key, (4, _WIDTH, _WIDTH)) / 8 for key in keys]
for _ in marks.steps(given.steps):
    layers = jax.block_until_ready(train(layers, x))
