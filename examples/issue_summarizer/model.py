"""The network: a small transformer that writes words from its vocabulary, or copies them from the body.

An encoder reads the body. A decoder with attention to it returns, for each position of a title, the
probability of every word in the vocabulary, of every word in the body, and of copying.
"""

from __future__ import annotations

import argparse
from typing import Any

import keras
import tensorflow as tf
import words
from dataset import Dataset
from keras import layers

HEADS = 4
FAR = -1e9  # a score that softmax turns into 0

Offered = list[tf.Tensor]  # keys and values
Memory = tuple[list[Offered], tf.Tensor]  # of the bodies: for each decoder layer, and keys for copying


def build(data: Dataset, args: argparse.Namespace) -> Summarizer:
    """A network for a dataset, of the size that the arguments set."""
    return Summarizer(data.vocabulary, data.body, data.title, args.width, args.depth)


class Summarizer(keras.Model):
    def __init__(self, vocabulary: int, body: int, title: int, width: int, depth: int) -> None:
        super().__init__()
        self.vocabulary, self.body, self.title, self.width = vocabulary, body, title, width
        self.words = layers.Embedding(vocabulary, width, embeddings_initializer=normal(width**-0.5))
        self.body_places = layers.Embedding(body, width)
        self.title_places = layers.Embedding(title, width)
        self.encoder = [Block(width, reads_body=False) for _ in range(depth)]
        self.decoder = [Block(width, reads_body=True) for _ in range(depth)]
        self.encoded, self.decoded = layers.LayerNormalization(), layers.LayerNormalization()
        self.asked, self.offered = layers.Dense(width), layers.Dense(width)
        self.copies = layers.Dense(1)
        self.bias = self.add_weight(shape=(vocabulary,), initializer="zeros", name="bias")
        self(tf.fill((1, body), words.END), tf.fill((1, title), words.END))  # creates all variables

    def call(self, bodies: tf.Tensor, titles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        memory = self.memory(bodies)
        x = self.decode(titles, bodies, memory)
        return self.written(x), *self.copied(x, bodies, memory)

    def encode(self, bodies: tf.Tensor) -> tf.Tensor:
        """A vector for each word of each body."""
        x = self.embedded(bodies) + self.body_places(tf.range(self.body))
        for block in self.encoder:
            x, _ = block(x, is_word(bodies))
        return self.encoded(x)

    def vector(self, bodies: tf.Tensor) -> tf.Tensor:
        """One vector of length 1 for each body."""
        counted = tf.cast(bodies != words.PAD, tf.float32)[..., None]
        return tf.math.l2_normalize(tf.reduce_sum(self.encode(bodies) * counted, axis=1), axis=-1)

    def memory(self, bodies: tf.Tensor) -> Memory:
        """What the decoder needs from the bodies, the same for every word: keys and values for each of its
        layers, and keys for copying."""
        encoded = self.encode(bodies)
        return [block.other.offered(encoded) for block in self.decoder], self.offered(encoded)

    def decode(self, titles: tf.Tensor, bodies: tf.Tensor, memory: Memory) -> tf.Tensor:
        """A vector for each position of the titles, from the words before it: `titles` start with START."""
        x = self.embedded(titles) + self.title_places(tf.range(self.title))
        before = tf.linalg.band_part(tf.ones((self.title, self.title), tf.bool), -1, 0)
        for block, body in zip(self.decoder, memory[0]):
            x, _ = block(x, before, body, is_word(bodies))
        return self.decoded(x)

    def decode_next(
        self, chosen: tf.Tensor, place: tf.Tensor, past: tf.Tensor, bodies: tf.Tensor, memory: Memory
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The vector of one more position, given the last word and the keys and values of earlier positions.
        Returns it, and the keys and values with its own added."""
        x = self.embedded(chosen[:, None]) + self.title_places(place)
        places, kept = tf.range(self.title), []
        for block, body, own in zip(self.decoder, memory[0], tf.unstack(past)):
            x, own = block(x, places <= place, body, is_word(bodies), own, (places == place)[:, None])
            kept.append(tf.stack(own))
        return self.decoded(x), tf.stack(kept)

    def no_past(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.zeros((len(self.decoder), 2, rows, HEADS, self.title, self.width // HEADS))

    def written(self, x: tf.Tensor) -> tf.Tensor:
        """The scores of the vocabulary's words."""
        return tf.matmul(x, tf.convert_to_tensor(self.words.embeddings), transpose_b=True) + self.bias

    def copied(self, x: tf.Tensor, bodies: tf.Tensor, memory: Memory) -> tuple[tf.Tensor, tf.Tensor]:
        """The share of each position in the body if a word is copied, and the score of copying."""
        looks = tf.matmul(self.asked(x), memory[1], transpose_b=True) * self.width**-0.5
        return tf.nn.softmax(tf.where((bodies != words.PAD)[:, None], looks, FAR)), self.copies(x)[..., 0]

    def embedded(self, numbers: tf.Tensor) -> tf.Tensor:
        known = tf.where(numbers < self.vocabulary, numbers, words.UNKNOWN)
        return self.words(known) * self.width**0.5


class Block(layers.Layer):
    """Attention among its own positions, to the body if it reads it, and two dense layers."""

    def __init__(self, width: int, reads_body: bool) -> None:
        super().__init__()
        self.own = Attention(width)
        self.other: Any = Attention(width) if reads_body else None
        self.wide, self.narrow = layers.Dense(2 * width, activation="gelu"), layers.Dense(width)
        self.norms = [layers.LayerNormalization() for _ in range(3 if reads_body else 2)]

    def call(
        self,
        x: tf.Tensor,
        seen: tf.Tensor,
        body: Offered | None = None,
        body_seen: tf.Tensor | None = None,
        past: tf.Tensor | None = None,
        is_new: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Offered]:
        """Also returns the keys and values of its own positions; with `past`, those plus the new one's."""
        normed = self.norms[0](x)
        own = self.own.offered(normed)
        if past is not None:
            own = [tf.where(is_new, new, old) for new, old in zip(own, tf.unstack(past))]
        x = x + self.own(normed, own, seen)
        if self.other is not None:
            x = x + self.other(self.norms[2](x), body, body_seen)
        return x + self.narrow(self.wide(self.norms[1](x))), own


class Attention(layers.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.query, self.keys, self.values, self.out = (layers.Dense(width) for _ in range(4))

    def offered(self, x: tf.Tensor) -> Offered:
        """Keys and values, by head."""
        return [self.by_head(self.keys(x)), self.by_head(self.values(x))]

    def call(self, x: tf.Tensor, offered: Offered, seen: tf.Tensor) -> tf.Tensor:
        keys, values = offered
        scores = (
            tf.matmul(self.by_head(self.query(x)), keys, transpose_b=True) * (self.width // HEADS) ** -0.5
        )
        mixed = tf.matmul(tf.nn.softmax(tf.where(seen, scores, FAR)), values)
        return self.out(tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, x.shape[1], self.width)))

    def by_head(self, x: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tf.reshape(x, (-1, x.shape[1], HEADS, self.width // HEADS)), (0, 2, 1, 3))


def is_word(bodies: tf.Tensor) -> tf.Tensor:
    """Which positions of the bodies hold a word, for every head and position that looks."""
    return (bodies != words.PAD)[:, None, None]


def normal(deviation: float) -> keras.initializers.Initializer:
    return keras.initializers.RandomNormal(stddev=deviation)


def losses(model: Summarizer, bodies: tf.Tensor, titles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(sum, number) over the words of the titles: how surprising each is, given those before it."""
    starts = tf.fill((tf.shape(titles)[0], 1), words.START)
    shifted = tf.ensure_shape(tf.concat([starts, titles[:, :-1]], axis=1), titles.shape)
    memory = model.memory(bodies)
    x = model.decode(shifted, bodies, memory)
    shares, copies = model.copied(x, bodies, memory)
    matches = tf.cast(titles[:, :, None] == bodies[:, None, :], tf.float32)
    copied = tf.math.log(tf.reduce_sum(shares * matches, axis=-1) + 1e-9) + tf.math.log_sigmoid(copies)
    # The vocabulary is the most expensive part: compute it only for positions that have a word.
    where = tf.where(titles != words.PAD)
    x, titles, copied, copies = (tf.gather_nd(each, where) for each in (x, titles, copied, copies))
    in_vocabulary = titles < model.vocabulary
    written = -tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.where(in_vocabulary, titles, words.UNKNOWN), model.written(x)
    )
    written = tf.where(in_vocabulary, written, FAR) + tf.math.log_sigmoid(-copies)
    likely = tf.reduce_logsumexp(tf.stack([written, copied]), axis=0)
    return -tf.reduce_sum(likely), tf.cast(tf.shape(where)[0], tf.float32)
