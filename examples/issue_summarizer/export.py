"""The trained network as a SavedModel with text in and text out: a server needs only TensorFlow.

It has several functions. A server answers with the best title; the others are for programs that load it.
"""

from __future__ import annotations

from pathlib import Path

import decoding
import tensorflow as tf
import words
from dataset import Dataset
from model import Summarizer

import oarlock

NEAREST = 5  # known pairs that a search returns
TEXTS = [tf.TensorSpec((None,), tf.string, name="body")]


class Titles:
    """Functions of texts."""

    common: tf.Variable  # this and the following are set by `remember`
    known_vectors: tf.Variable
    known_titles: tf.Variable

    def __init__(self, model: Summarizer, data: Dataset, beams: int) -> None:
        self.model, self.beams = model, beams
        self.vocabulary = words.Vocabulary(data.vocabulary_file, data.vocabulary)
        self.common = self.known_vectors = self.known_titles = None

    @tf.function(input_signature=TEXTS)
    def greedy(self, body: tf.Tensor) -> dict[str, tf.Tensor]:
        """The likeliest word each time: the fastest."""
        bodies, spelled = self.read(body)
        return {"title": self.spell(decoding.greedy(self.model, bodies), spelled)}

    @tf.function(input_signature=TEXTS)
    def beam(self, body: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best title; also all candidates that the search kept, and their log probabilities."""
        bodies, spelled = self.read(body)
        titles, scores = decoding.beam(self.model, bodies, self.beams)
        flat = tf.reshape(titles, (-1, self.model.title))
        written = self.spell(flat, tf.repeat(spelled, self.beams, axis=0))
        written = tf.reshape(written, (-1, self.beams))
        return {"title": written[:, 0], "titles": written, "scores": scores}

    @tf.function(input_signature=TEXTS)
    def best(self, body: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best title alone: what a server answers."""
        return {"title": self.beam(body)["title"]}

    @tf.function(input_signature=TEXTS)
    def encode(self, body: tf.Tensor) -> dict[str, tf.Tensor]:
        """The body as a vector of length 1."""
        return {"vector": self.model.vector(self.read(body)[0])}

    @tf.function(input_signature=TEXTS)
    def nearest(self, body: tf.Tensor) -> dict[str, tf.Tensor]:
        """The titles of the known bodies with the most similar vectors."""
        similar = tf.matmul(self.apart(self.encode(body)["vector"]), self.known_vectors, transpose_b=True)
        similarity, places = tf.math.top_k(similar, min(NEAREST, self.known_vectors.shape[0]))
        return {"titles": tf.gather(self.known_titles, places), "similarity": similarity}

    def apart(self, vectors: tf.Tensor) -> tf.Tensor:
        """Without what all bodies have in common, which would otherwise make all of them similar."""
        return tf.math.l2_normalize(vectors - self.common, axis=-1)

    def read(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        numbers, spelled = self.vocabulary.of_bodies(texts, self.model.body)
        return tf.cast(numbers, tf.int32), spelled

    def spell(self, titles: tf.Tensor, body_words: tf.Tensor) -> tf.Tensor:
        return words.joined(self.vocabulary.to_words(tf.cast(titles, tf.int64), body_words))

    def remember(self, data: Dataset, count: int) -> None:
        """Make the first `count` training pairs known to `nearest`."""
        vector = tf.function(self.model.vector)
        vectors, left = [], count
        for bodies, _ in data.batches("train", 500):
            vectors.append(vector(bodies[:left]))
            left -= len(vectors[-1])
            if left <= 0:
                break
        vectors = tf.concat(vectors, axis=0)
        self.common = tf.Variable(tf.reduce_mean(vectors, axis=0), trainable=False)
        self.known_vectors = tf.Variable(self.apart(vectors), trainable=False)
        titles = data.texts("train")[1][: self.known_vectors.shape[0]]
        self.known_titles = tf.Variable(tf.constant(titles), trainable=False)


def export_model(model: Summarizer, data: Dataset, known: int, beams: int) -> Path | None:
    """Write the next version of the model; returns its folder."""
    titles = Titles(model, data, beams)
    titles.remember(data, known)
    exported = tf.Module()
    # What the functions use: the vocabulary's file becomes an asset of the SavedModel.
    exported.vocabulary = titles.vocabulary
    remembered = [titles.common, titles.known_vectors, titles.known_titles]
    exported.state = [*remembered, *(each.value for each in model.variables)]
    exported.serve = titles.best
    others = {name: getattr(titles, name) for name in ("greedy", "beam", "encode", "nearest")}
    return oarlock.export(exported, kind="text", signatures=others)
