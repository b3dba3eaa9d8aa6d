"""The network: a small GPT that reads bytes and predicts the next one. Functions of a dict of arrays.

Nothing here knows about workers. `save` stores a model in a folder, and `load` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Weights = dict[str, jax.Array]
# Takes queries, keys, values and the cache; returns the attention output and the new cache.
Attend = Callable[[jax.Array, jax.Array, jax.Array, Any], tuple[jax.Array, Any]]


@dataclass(frozen=True)
class Config:
    layers: int = 2
    width: int = 128
    heads: int = 4
    context: int = 64  # how many bytes it looks back
    dropout: float = 0.1
    vocabulary: int = 256  # bytes, so it can read any text and there is no tokenizer to keep

    @property
    def operations(self) -> int:
        """Floating-point operations to train on one byte: forward and twice that backward."""
        matrices = 12 * self.layers * self.width**2 + self.vocabulary * self.width
        return 6 * matrices + 12 * self.layers * self.width * self.context


def first_weights(config: Config, seed: int) -> Weights:
    """Weights by name. Each is stacked over all layers, so that all layers are one loop and compile once."""
    layers, width = config.layers, config.width
    usual = width**-0.5
    small = usual / (2 * layers) ** 0.5  # for what adds to the stream, or it would grow with every layer
    matrices = {
        "tokens": ((config.vocabulary, width), usual),
        "positions": ((config.context, width), usual),
        "blocks/qkv": ((layers, width, 3 * width), usual),
        "blocks/attention_out": ((layers, width, width), small),
        "blocks/up": ((layers, width, 4 * width), usual),
        "blocks/mlp_out": ((layers, 4 * width, width), small),
    }
    random = np.random.default_rng(seed)
    weights = {
        name: (random.standard_normal(shape) * scale).astype(np.float32)
        for name, (shape, scale) in matrices.items()
    }
    weights["norm"] = np.ones(width, np.float32)
    weights["blocks/norm1"], weights["blocks/norm2"] = np.ones((2, layers, width), np.float32)
    return weights


def loss_of(weights: Weights, rows: jax.Array, config: Config, key: jax.Array | None = None) -> jax.Array:
    """The loss of windows from `text.windows`; with a key, dropout applies as in training."""
    scores = scores_of(weights, rows[:, :-1], config, key)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), rows[:, 1:, None].astype(int), axis=-1))


def scores_of(weights: Weights, inputs: jax.Array, config: Config, key: jax.Array | None = None) -> jax.Array:
    """The scores of each next byte, for every position."""

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, kept: None) -> tuple[jax.Array, None]:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True), kept

    return through(weights, inputs, slice(inputs.shape[1]), config, attend, key=key)[0]


def through(
    weights: Weights,
    inputs: jax.Array,
    positions: jax.Array | slice,
    config: Config,
    attend: Attend,
    kept: Any = None,
    key: jax.Array | None = None,
) -> tuple[jax.Array, Any]:
    """(scores, cache). `attend` decides which earlier bytes are seen; `kept` is its cache, by layer."""
    keys = None if key is None else jax.random.split(key, 2 * config.layers + 1)
    weights = {name: array.astype(arithmetic()) for name, array in weights.items()}
    tokens = weights["tokens"]
    x = tokens[inputs] + weights["positions"][positions]
    x = dropped(x, config.dropout, keys if keys is None else keys[-1])

    def block(x: jax.Array, layer: Any) -> tuple[jax.Array, Any]:
        these, kept, key1, key2 = layer
        added, kept = attention(norm(x, these["norm1"]), these, config.heads, attend, kept)
        x = x + dropped(added, config.dropout, key1)
        hidden = jax.nn.gelu(norm(x, these["norm2"]) @ these["up"])
        return x + dropped(hidden @ these["mlp_out"], config.dropout, key2), kept

    blocks = {name[7:]: array for name, array in weights.items() if name.startswith("blocks/")}
    half = config.layers
    layers = (blocks, kept, None, None) if keys is None else (blocks, kept, keys[:half], keys[half:-1])
    # Two layers at a time: on a CPU a step takes six tenths of the time it takes with one.
    x, kept = jax.lax.scan(block, x, layers, unroll=2)
    # The embedding is also the output head: a byte is written with the vector that it is read with.
    return (norm(x, weights["norm"]) @ tokens.T).astype(jnp.float32), kept


def attention(x: jax.Array, weights: Weights, heads: int, attend: Attend, kept: Any) -> tuple[jax.Array, Any]:
    batch, length, width = x.shape
    q, k, v = jnp.moveaxis((x @ weights["qkv"]).reshape(batch, length, 3, heads, -1), 2, 0)
    x, kept = attend(q, k, v, kept)
    return x.reshape(batch, length, width) @ weights["attention_out"], kept


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    return (wide * jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def dropped(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    if key is None or not rate:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def arithmetic() -> jax.typing.DTypeLike:
    """On a GPU most computation is in 16 bits. The weights themselves stay in 32."""
    return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16


def save(folder: str | Path, weights: Weights, config: Config) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    np.savez(Path(folder) / "weights.npz", **weights)
    (Path(folder) / "config.json").write_text(json.dumps(asdict(config)) + "\n")


def load(folder: str | Path) -> tuple[Weights, Config]:
    """(weights, config)"""
    with np.load(Path(folder) / "weights.npz") as stored:
        return dict(stored), Config(**json.loads((Path(folder) / "config.json").read_text()))
