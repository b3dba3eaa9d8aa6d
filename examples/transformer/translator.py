"""Functions of texts, with everything they need: what evaluate.py scores, and what export.py exports."""

from __future__ import annotations

from pathlib import Path

import decoding
import pieces
import tensorflow as tf
import text_ops
from model import Transformer

TEXTS = [tf.TensorSpec((None,), tf.string, name="text")]


class Translator(tf.Module):
    def __init__(self, network: Transformer, vocabulary_file: Path, beams: int) -> None:
        super().__init__()
        self._network, self._beams = network, beams
        self.vocabulary = text_ops.Vocabulary(vocabulary_file)  # its file becomes an asset
        self.weights = [variable.value for variable in network.variables]

    @tf.function(input_signature=TEXTS)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best translation by beam search; also all candidates that it kept, and their log
        probabilities."""
        found, scores = decoding.beam(self._network, self.read(text), self._beams)
        written = self.vocabulary.texts(tf.reshape(found, (-1, self._network.longest)))
        written = tf.reshape(written, (-1, self._beams))
        return {"translation": written[:, 0], "translations": written, "scores": scores}

    @tf.function(input_signature=TEXTS)
    def greedy(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The likeliest piece each time: the fastest."""
        return {"translation": self.vocabulary.texts(decoding.greedy(self._network, self.read(text)))}

    @tf.function(input_signature=TEXTS)
    def attention(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best translation with its pieces and those of the text, and how much each piece of the
        translation (rows) looks at each piece of the text (columns), averaged over the last layer's heads."""
        sources = self.read(text)
        found, _ = decoding.beam(self._network, sources, self._beams)
        written = found[:, 0]
        starts = tf.fill((tf.shape(written)[0], 1), pieces.START)
        seen = tf.concat([starts, written[:, :-1]], axis=1)
        _, looks = self._network.decode(seen, self._network.memory(sources))
        return {
            "translation": self.vocabulary.texts(written),
            "read": self.vocabulary.spelled(sources),
            "written": self.vocabulary.spelled(written),
            "attention": tf.reduce_mean(looks, axis=1),
        }

    def read(self, texts: tf.Tensor) -> tf.Tensor:
        """The numbers of the texts' pieces, padded to the longest; a text that is too long is cut off."""
        numbers = self.vocabulary.numbers(texts)[:, : self._network.longest - 1]
        ends = tf.fill((tf.shape(texts)[0], 1), tf.constant(pieces.END, tf.int64))
        return tf.cast(tf.concat([numbers, ends], axis=1).to_tensor(pieces.PAD), tf.int32)
