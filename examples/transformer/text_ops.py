"""What `pieces.py` does, in TensorFlow operations: they are exported with the model and need nothing else.

The tests compare both on thousands of sentences.
"""

from __future__ import annotations

from pathlib import Path

import pieces
import tensorflow as tf

CUT = "\x1f"  # between two words; no text has it once its spaces are replaced


class Vocabulary(tf.Module):
    """Two tables over one file, one piece per line. The file is an asset of the exported model."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        known = pieces.read(file)
        self.size, self.longest = len(known), max(map(len, known[len(pieces.SPECIAL) :]), default=1)
        index, line = tf.lookup.TextFileIndex.LINE_NUMBER, tf.lookup.TextFileIndex.WHOLE_LINE
        self.to_number = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(str(file), tf.string, line, tf.int64, index), -1
        )
        self.to_piece = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(str(file), tf.int64, index, tf.string, line), ""
        )

    def numbers(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The numbers of each text's pieces as a ragged tensor, without its end."""
        words = split(texts)
        found = self.cut(words.flat_values)
        of_words = tf.RaggedTensor.from_row_splits(found, words.row_splits, validate=False)
        return of_words.merge_dims(1, 2)

    def texts(self, numbers: tf.Tensor) -> tf.Tensor:
        """Texts from the numbers of their pieces, shape (texts, pieces). The end marks are skipped."""
        numbers = tf.cast(numbers, tf.int64)
        spelled = tf.where(numbers < len(pieces.SPECIAL), "", self.to_piece.lookup(numbers))
        joined = tf.strings.regex_replace(tf.strings.reduce_join(spelled, axis=-1), pieces.GAP, " ")
        return tf.strings.regex_replace(joined, pieces.ENDS, "")

    def spelled(self, numbers: tf.Tensor) -> tf.Tensor:
        """Each piece as it is in the vocabulary."""
        return self.to_piece.lookup(tf.cast(numbers, tf.int64))

    def cut(self, words: tf.Tensor) -> tf.RaggedTensor:
        """The longest piece that fits at the start of each word, then at the start of the rest, and so on. If
        no piece fits at some point, the word is unknown. Returns the numbers, one row per word."""
        length = tf.strings.length(words, unit="UTF8_CHAR")
        at, is_known = tf.zeros_like(length), length <= pieces.LONGEST_WORD
        numbers = tf.zeros((tf.shape(words)[0], 0), tf.int64)
        while tf.reduce_any(is_known & (at < length)):
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(numbers, tf.TensorShape((None, None)))]
            )
            number, size = self.longest_piece(words, at, length - at)
            is_left = is_known & (at < length)
            is_known &= ~is_left | (size > 0)
            numbers = tf.concat([numbers, tf.where(is_left, number, -1)[:, None]], axis=1)
            at += tf.where(is_left, size, 0)
        unknown = tf.where(is_known, tf.cast(-1, tf.int64), pieces.UNKNOWN)[:, None]
        numbers = tf.concat([tf.where(is_known[:, None], numbers, -1), unknown], axis=1)
        return tf.ragged.boolean_mask(numbers, numbers >= 0)

    def longest_piece(self, words: tf.Tensor, at: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(number, letters) of the longest piece at a position in each word; -1 and 0 if none fits."""
        sizes = tf.range(1, self.longest + 1)
        shape = tf.stack([tf.shape(words)[0], self.longest])
        rest = tf.strings.substr(words, at, tf.fill(tf.shape(at), self.longest), unit="UTF8_CHAR")
        starts = tf.strings.substr(
            tf.broadcast_to(rest[:, None], shape),
            tf.zeros(shape, tf.int32),
            tf.broadcast_to(sizes, shape),
            unit="UTF8_CHAR",
        )
        # Anything longer than the rest of the word is the rest itself, not a piece of that size.
        number = tf.where(sizes <= left[:, None], self.to_number.lookup(starts), -1)
        size = tf.reduce_max(tf.where(number >= 0, sizes, 0), axis=1)
        return tf.where(size > 0, tf.gather(number, tf.maximum(size - 1, 0), batch_dims=1), -1), size


def split(texts: tf.Tensor) -> tf.RaggedTensor:
    """The words of each text, each with the space before it, as a ragged tensor."""
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    for found, instead in ((pieces.SPACES, " "), (pieces.ENDS, ""), (" ", pieces.GAP)):
        texts = tf.strings.regex_replace(texts, found, instead)
    texts = tf.where(texts == "", "", tf.strings.join([pieces.GAP, texts]))
    return tf.strings.split(tf.strings.regex_replace(texts, f"({pieces.WORD})", rf"\1{CUT}"), CUT)
