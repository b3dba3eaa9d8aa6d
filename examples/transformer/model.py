"""The network: the Transformer of "Attention Is All You Need", encoder and decoder, for any Keras backend.

It uses only `keras.ops`, so the same program trains on TensorFlow, PyTorch and JAX. Normalization comes
before each part of a layer, not after it: small networks train faster that way.
"""

from __future__ import annotations

import argparse
from typing import Any

import keras
import numpy as np
import pieces
from dataset import Dataset
from keras import layers, ops

FAR = -1e9  # a score that softmax turns into 0

Tensor = Any  # of the current Keras backend
Offered = tuple[Tensor, Tensor]  # keys and values
Past = list[Offered]  # of what is already written, for each decoder layer
Memory = list[Any]  # which positions of the sources have a piece, then `Offered` for each decoder layer


def build(data: Dataset, args: argparse.Namespace) -> Transformer:
    """A network for a dataset, of the size that the arguments set."""
    return Transformer(data.vocabulary, data.longest, args.width, args.depth, args.heads, args.dropout)


class Transformer(keras.Model):
    def __init__(
        self, vocabulary: int, longest: int, width: int, depth: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.vocabulary, self.longest, self.width, self.heads = vocabulary, longest, width, heads
        self.pieces = layers.Embedding(vocabulary, width, embeddings_initializer=normal(width**-0.5))
        self.places = waves(max(longest, 2), width)
        self.encoder = [Block(width, heads, dropout, reads=False) for _ in range(depth)]
        self.decoder = [Block(width, heads, dropout, reads=True) for _ in range(depth)]
        self.encoded, self.decoded = layers.LayerNormalization(), layers.LayerNormalization()
        self.first, self.second = layers.Dropout(dropout), layers.Dropout(dropout)
        some = ops.full((1, 2), pieces.END, "int32")
        self({"source": some, "target": some})  # creates all variables

    def call(self, inputs: dict[str, Tensor], training: bool = False) -> Tensor:
        memory = self.memory(inputs["source"], training)
        x, _ = self.decode(inputs["target"], memory, training)
        return self.scores(x)

    def memory(self, sources: Tensor, training: bool = False) -> Memory:
        """What the decoder needs from the sources, the same for every piece that it writes: which of their
        positions have a piece, and keys and values for each of its layers."""
        is_piece = ops.not_equal(sources, pieces.PAD)[:, None, None]  # the padding mask
        x = self.first(self.embedded(sources), training=training)
        for block in self.encoder:
            x, _, _ = block(x, is_piece, training=training)
        x = self.encoded(x)
        return [is_piece, *(block.other.offered(x) for block in self.decoder)]

    def decode(self, targets: Tensor, memory: Memory, training: bool = False) -> tuple[Tensor, Tensor]:
        """A vector for each position of the targets, from the pieces before it: `targets` start with START.
        Also the last layer's attention, shape (rows, heads, positions, positions of the source)."""
        is_piece, *offered = memory
        places = ops.arange(ops.shape(targets)[1])
        before = places[None, :] <= places[:, None]  # the look-ahead mask
        x, looks = self.second(self.embedded(targets), training=training), None
        for block, other in zip(self.decoder, offered):
            x, _, looks = block(x, before, other, is_piece, training=training)
        return self.decoded(x), looks

    def decode_next(self, chosen: Tensor, place: Tensor, past: Past, memory: Memory) -> tuple[Tensor, Past]:
        """The scores of one more position's pieces, given the last piece and the keys and values of earlier
        positions. Returns them, and the keys and values with its own added."""
        is_piece, *offered = memory
        x = self.embedded(chosen[:, None], place)
        places, kept = ops.arange(self.longest), []
        for block, other, own in zip(self.decoder, offered, past):
            x, own, _ = block(x, places <= place, other, is_piece, own, (places == place)[:, None])
            kept.append(own)
        return self.scores(self.decoded(x))[:, 0], kept

    def no_past(self, rows: Tensor) -> Past:
        shape = (rows, self.heads, self.longest, self.width // self.heads)
        return [(ops.zeros(shape), ops.zeros(shape)) for _ in self.decoder]

    def embedded(self, numbers: Tensor, start: Tensor | int = 0) -> Tensor:
        places = ops.convert_to_tensor(self.places)
        places = ops.take(places, start + ops.arange(ops.shape(numbers)[1]), axis=0)
        return self.pieces(numbers) * self.width**0.5 + places

    def scores(self, x: Tensor) -> Tensor:
        """The scores of every piece in the vocabulary, by the vectors that pieces also have as inputs."""
        return ops.matmul(x, ops.transpose(ops.convert_to_tensor(self.pieces.embeddings)))


class Block(layers.Layer):
    """Attention among its own positions, to the source if it reads it, and two dense layers."""

    def __init__(self, width: int, heads: int, dropout: float, reads: bool) -> None:
        super().__init__()
        self.own = Attention(width, heads)
        self.other: Any = Attention(width, heads) if reads else None
        self.wide, self.narrow = layers.Dense(4 * width, activation="relu"), layers.Dense(width)
        self.norms = [layers.LayerNormalization() for _ in range(3 if reads else 2)]
        self.drops = [layers.Dropout(dropout) for _ in range(3 if reads else 2)]

    def call(
        self,
        x: Tensor,
        seen: Tensor,
        offered: Offered | None = None,
        offered_seen: Tensor | None = None,
        past: Offered | None = None,
        is_new: Tensor | None = None,
        training: bool = False,
    ) -> tuple[Tensor, Offered, Tensor]:
        """Also returns the keys and values of its own positions, with `past` those plus the new one's, and
        its attention to the source."""
        normed, looks = self.norms[0](x), None
        own = self.own.offered(normed)
        if past is not None:
            own = tuple(ops.where(is_new, new, old) for new, old in zip(own, past))
        mixed, _ = self.own(normed, own, seen)
        x = x + self.drops[0](mixed, training=training)
        if self.other is not None:
            mixed, looks = self.other(self.norms[2](x), offered, offered_seen)
            x = x + self.drops[2](mixed, training=training)
        made = self.narrow(self.wide(self.norms[1](x)))
        return x + self.drops[1](made, training=training), own, looks


class Attention(layers.Layer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.query = layers.Dense(width)
        # A bias here changes no weight of attention: its gradient is rounding, which Adam would make large.
        self.keys = layers.Dense(width, use_bias=False)
        self.values, self.out = layers.Dense(width), layers.Dense(width)

    def offered(self, x: Tensor) -> Offered:
        """Keys and values, by head."""
        return self.by_head(self.keys(x)), self.by_head(self.values(x))

    def call(self, x: Tensor, offered: Offered, seen: Tensor) -> tuple[Tensor, Tensor]:
        """The attended values, and how much each position looks at each other."""
        keys, values = offered
        size = (self.width // self.heads) ** -0.5
        scores = ops.matmul(self.by_head(self.query(x)) * size, ops.transpose(keys, (0, 1, 3, 2)))
        looks = ops.softmax(ops.where(seen, scores, FAR))
        mixed = ops.transpose(ops.matmul(looks, values), (0, 2, 1, 3))
        return self.out(ops.reshape(mixed, (-1, ops.shape(x)[1], self.width))), looks

    def by_head(self, x: Tensor) -> Tensor:
        parts = ops.reshape(x, (-1, ops.shape(x)[1], self.heads, self.width // self.heads))
        return ops.transpose(parts, (0, 2, 1, 3))


def waves(places: int, width: int) -> np.ndarray:
    """A vector for each position: sines and cosines of increasing wavelength."""
    angles = np.arange(places)[:, None] / 10000 ** (np.arange(width // 2)[None] * 2 / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float32")


def normal(deviation: float) -> keras.initializers.Initializer:
    return keras.initializers.RandomNormal(stddev=deviation)


class Surprise(keras.losses.Loss):
    """How surprising each piece is, given those before it: the mean over all pieces. Padding is left out by
    its weight of 0. `smoothing` is the share of a piece's probability that all others get, so that the
    network does not become too sure."""

    def __init__(self, smoothing: float = 0.0) -> None:
        super().__init__(reduction="mean_with_sample_weight")
        self.smoothing = smoothing

    def call(self, numbers: Tensor, scores: Tensor) -> Tensor:
        numbers = ops.cast(numbers, "int32")
        total = ops.logsumexp(scores, axis=-1)
        right = ops.take_along_axis(scores, numbers[..., None], axis=-1)[..., 0]
        wanted = (1 - self.smoothing) * right + self.smoothing * ops.mean(scores, axis=-1)
        return total - wanted


def accuracy() -> keras.metrics.Metric:
    """The share of pieces that are the likeliest at their position, weighted like the loss."""
    return keras.metrics.SparseCategoricalAccuracy(name="accuracy")


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Rises for the first steps, then falls with the inverse square root of the step. It does not depend on
    the total number of steps: a model a third of the way is one that was trained for that long."""

    def __init__(self, width: int, steps: int, scale: float = 1.0) -> None:
        super().__init__()
        self.width, self.steps, self.scale = width, steps, scale

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32") + 1
        rising, falling = step * self.steps**-1.5, ops.rsqrt(step)
        return self.scale * self.width**-0.5 * ops.minimum(rising, falling)
