"""The network: a small transformer that writes words of its vocabulary, or copies them from the body.

An encoder reads the body. A decoder with attention to it gives, for each place of a title, a probability of
every word of the vocabulary, of every word of the body, and of which of the two to go by.
"""

import keras
import tensorflow as tf
import words
from keras import layers

FAR = -1e9  # a score that no softmax leaves anything of


def build(data, args):
    """A network for a dataset, as large as the arguments say."""
    return Summarizer(data.vocabulary, data.body, data.title, args.width, args.depth)


class Summarizer(keras.Model):
    def __init__(self, vocabulary, body, title, width, depth, heads=4):
        super().__init__()
        self.vocabulary, self.body, self.title, self.width = vocabulary, body, title, width
        self.words = layers.Embedding(vocabulary, width, embeddings_initializer=normal(width**-0.5))
        self.body_places = layers.Embedding(body, width)
        self.title_places = layers.Embedding(title, width)
        self.encoder = [Block(width, heads, reads_body=False) for _ in range(depth)]
        self.decoder = [Block(width, heads, reads_body=True) for _ in range(depth)]
        self.encoded, self.decoded = layers.LayerNormalization(), layers.LayerNormalization()
        self.asked, self.offered = layers.Dense(width), layers.Dense(width)
        self.copies = layers.Dense(1)
        self.bias = self.add_weight(shape=(vocabulary,), initializer="zeros", name="bias")
        self(tf.fill((1, body), words.END), tf.fill((1, title), words.END))  # makes all variables

    def call(self, bodies, titles):
        encoded = self.encode(bodies)
        x = self.decode(titles, bodies, encoded)
        return self.written(x), *self.copied(x, bodies, encoded)

    def encode(self, bodies):
        """A vector for each word of each body."""
        x = self.embedded(bodies, self.body_places)
        seen = (bodies != words.PAD)[:, None, None]
        for block in self.encoder:
            x = block(x, seen)
        return self.encoded(x)

    def vector(self, bodies):
        """One vector of length 1 for each body."""
        is_word = tf.cast(bodies != words.PAD, tf.float32)[..., None]
        return tf.math.l2_normalize(tf.reduce_sum(self.encode(bodies) * is_word, axis=1), axis=-1)

    def decode(self, titles, bodies, encoded):
        """A vector for each place of the titles, made from the words before it: `titles` begin with START."""
        x = self.embedded(titles, self.title_places)
        before = tf.linalg.band_part(tf.ones((self.title, self.title), tf.bool), -1, 0)[None, None]
        seen = (bodies != words.PAD)[:, None, None]
        for block in self.decoder:
            x = block(x, before, encoded, seen)
        return self.decoded(x)

    def written(self, x):
        """The scores of the vocabulary's words."""
        return tf.matmul(x, tf.convert_to_tensor(self.words.embeddings), transpose_b=True) + self.bias

    def copied(self, x, bodies, encoded):
        """The shares of the body's places if a word is copied, and the score of copying."""
        looks = tf.matmul(self.asked(x), self.offered(encoded), transpose_b=True) * self.width**-0.5
        return tf.nn.softmax(tf.where((bodies != words.PAD)[:, None], looks, FAR)), self.copies(x)[..., 0]

    def embedded(self, numbers, places):
        known = tf.where(numbers < self.vocabulary, numbers, words.UNKNOWN)
        return self.words(known) * self.width**0.5 + places(tf.range(numbers.shape[1]))


class Block(layers.Layer):
    """Attention among its own places, to the body if it reads it, and two dense layers."""

    def __init__(self, width, heads, reads_body):
        super().__init__()
        self.own = Attention(width, heads)
        self.other = Attention(width, heads) if reads_body else None
        self.wide, self.narrow = layers.Dense(2 * width, activation="gelu"), layers.Dense(width)
        self.norms = [layers.LayerNormalization() for _ in range(3 if reads_body else 2)]

    def call(self, x, seen, body=None, body_seen=None):
        normal = self.norms[0](x)
        x = x + self.own(normal, normal, seen)
        if self.other is not None:
            x = x + self.other(self.norms[2](x), body, body_seen)
        return x + self.narrow(self.wide(self.norms[1](x)))


class Attention(layers.Layer):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.each = heads, width // heads
        self.query, self.keys, self.values, self.out = (layers.Dense(width) for _ in range(4))

    def call(self, x, other, seen):
        query, keys, values = (
            tf.transpose(tf.reshape(made, (-1, made.shape[1], self.heads, self.each)), (0, 2, 1, 3))
            for made in (self.query(x), self.keys(other), self.values(other))
        )
        scores = tf.matmul(query, keys, transpose_b=True) * self.each**-0.5
        mixed = tf.matmul(tf.nn.softmax(tf.where(seen, scores, FAR)), values)
        return self.out(
            tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, x.shape[1], self.heads * self.each))
        )


def normal(deviation):
    return keras.initializers.RandomNormal(stddev=deviation)


def losses(model, bodies, titles):
    """(sum, number) over the words of the titles: how surprising each is, given those before it."""
    starts = tf.fill((tf.shape(titles)[0], 1), words.START)
    shifted = tf.ensure_shape(tf.concat([starts, titles[:, :-1]], axis=1), titles.shape)
    encoded = model.encode(bodies)
    x = model.decode(shifted, bodies, encoded)
    shares, copies = model.copied(x, bodies, encoded)
    matches = tf.cast(titles[:, :, None] == bodies[:, None, :], tf.float32)
    copied = tf.math.log(tf.reduce_sum(shares * matches, axis=-1) + 1e-9) + tf.math.log_sigmoid(copies)
    # The vocabulary is the dearest part of all: only for places that have a word.
    where = tf.where(titles != words.PAD)
    x, titles, copied, copies = (tf.gather_nd(each, where) for each in (x, titles, copied, copies))
    in_vocabulary = titles < model.vocabulary
    written = -tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.where(in_vocabulary, titles, words.UNKNOWN), model.written(x)
    )
    written = tf.where(in_vocabulary, written, FAR) + tf.math.log_sigmoid(-copies)
    likely = tf.reduce_logsumexp(tf.stack([written, copied]), axis=0)
    return -tf.reduce_sum(likely), tf.cast(tf.shape(where)[0], tf.float32)
