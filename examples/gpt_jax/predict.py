"""How the model is served: `load` returns what `oarlock serve` asks for the next bytes of many texts at once.

This file, `model.py`, `weights.npz` and `config.json` are one version of the model. The server draws the
bytes from the scores that this returns. Nothing is computed twice, because the keys and values of what was
read are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import model
import numpy as np

SLOTS = 16  # texts at a time

Kept = tuple[jax.Array, jax.Array]  # keys and values


def load(folder: Path) -> Reader:
    return Reader(*model.load(folder))


class Reader:
    """Reads texts, each in its own slot, and returns the scores of each next byte."""

    def __init__(self, weights: model.Weights, config: model.Config, slots: int = SLOTS) -> None:
        self.slots, self.context, self.vocabulary = slots, config.context, config.vocabulary
        self._weights = jax.device_put(weights)
        # One more slot, for rows that pad a batch.
        shape = (config.layers, slots + 1, config.context, config.heads, config.width // config.heads)
        self._kept = tuple(jnp.zeros(shape, model.arithmetic()) for _ in ("keys", "values"))
        self._read = jax.jit(partial(read, config=config), donate_argnums=1)

    def encode(self, text: str) -> list[int]:
        return list(text.encode()) or [10]

    def decode(self, token: int) -> bytes:
        return bytes([token])

    def start(self, slot: int, tokens: Sequence[int]) -> np.ndarray:
        """Clear the slot and read these tokens; return the scores of the next byte."""
        size = min(max(16, padded(len(tokens))), self.context)
        row = np.zeros((1, size), np.int32)
        row[0, : len(tokens)] = tokens
        # The padding comes after the text: nothing looks there until the next bytes replace it.
        return self._scores([slot], np.arange(size)[None], row, len(tokens) - 1)[0]

    def step(self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
        """Read one more byte in each of these slots; return the scores of the next ones, one row each."""
        count = len(slots)
        rows = np.zeros((3, padded(count)), np.int32)
        rows[0] = self.slots
        rows[:, :count] = [list(slots), positions, tokens]
        return self._scores(rows[0], rows[1][:, None], rows[2][:, None], 0)[:count]

    def _scores(
        self, slots: Sequence[int] | np.ndarray, positions: np.ndarray, tokens: np.ndarray, last: int
    ) -> np.ndarray:
        scores, self._kept = self._read(
            self._weights, self._kept, np.asarray(slots), positions, tokens, np.int32(last)
        )
        return np.asarray(scores)


def read(
    weights: model.Weights,
    kept: Kept,
    slots: jax.Array,
    positions: jax.Array,
    tokens: jax.Array,
    last: jax.Array,
    config: model.Config,
) -> tuple[jax.Array, Kept]:
    """(scores after the byte at position `last` of each row, keys and values)"""

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, kept: Kept) -> tuple[jax.Array, Kept]:
        keys, values = (
            old.at[slots[:, None], positions].set(new) for old, new in zip(kept, (k, v), strict=True)
        )
        # Each byte sees itself and those before it. What a slot holds after them belongs to an older text.
        seen = jnp.arange(config.context) <= positions[:, None, :, None]
        return jax.nn.dot_product_attention(q, keys[slots], values[slots], mask=seen), (keys, values)

    scores, kept = model.through(weights, tokens, positions, config, attend, kept)
    return scores[:, last], kept


def padded(count: int) -> int:
    """The next of 1, 4, 16, 64, ...: a shape that was seen before needs no compiling."""
    return 4 ** math.ceil(math.log(count, 4))
