"""Text to numbers and back, using only TensorFlow operations, so that the exported model works on text.

A word is a run of letters and digits, or a single punctuation mark, in lower case. The most common words have
their own numbers. Any other word of a body gets a number for the position where it first occurs there,
counted from the end of the vocabulary: so a title can contain a name that no title had before.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

import tensorflow as tf

PAD, START, END, UNKNOWN = range(4)
SPECIAL = ["[pad]", "[start]", "[end]", "[unknown]"]  # no text has these: a bracket is a separate word


def split(texts: tf.Tensor) -> tf.RaggedTensor:
    """The words of each text, as a ragged tensor."""
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    texts = tf.strings.lower(texts, encoding="utf-8")
    texts = tf.strings.regex_replace(texts, r"[-=~*#_^+.]{3,}", " ")  # mostly underlines of headings
    texts = tf.strings.regex_replace(texts, "``", "`")
    return tf.strings.split(tf.strings.regex_replace(texts, r"([^\pL\pN\s])", r" \1 "))


def joined(words: tf.Tensor) -> tf.Tensor:
    """Titles from their words, shape (titles, words); empty words are skipped."""
    text = tf.strings.strip(tf.strings.reduce_join(words, axis=-1, separator=" "))
    for found, instead in (
        (r"([`\"]) ([^`\"]*) [`\"]", r"\1\2\1"),
        (r" ?([_/\-.=~^]) ?", r"\1"),
        (r" ([,;:!?)\]}%'])", r"\1"),
        (r"([(\[{@#$]) ", r"\1"),
        (r"' (s|t|re|ve|ll|d)\b", r"'\1"),
    ):
        text = tf.strings.regex_replace(text, found, instead)
    first = tf.strings.substr(text, 0, 1, unit="UTF8_CHAR")
    rest = tf.strings.substr(text, 1, 1000, unit="UTF8_CHAR")
    return tf.strings.join([tf.strings.upper(first, encoding="utf-8"), rest])


def count(texts: Sequence[str], size: int, chunk: int = 4096) -> list[str]:
    """The `size` most common words, the special ones first; equally common ones in alphabetical order."""
    counted: collections.Counter[bytes] = collections.Counter()
    for start in range(0, len(texts), chunk):
        counted.update(split(tf.constant(texts[start : start + chunk])).flat_values.numpy().tolist())
    ranked = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
    return [*SPECIAL, *(word.decode() for word, _ in ranked[: size - len(SPECIAL)])]


class Vocabulary(tf.Module):
    """Two tables over one file, one word per line. The file is an asset of the exported model."""

    def __init__(self, file: str, size: int) -> None:
        super().__init__()
        self.size = size
        index, line = tf.lookup.TextFileIndex.LINE_NUMBER, tf.lookup.TextFileIndex.WHOLE_LINE
        self.numbers = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(file, tf.string, line, tf.int64, index), UNKNOWN
        )
        self.words = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(file, tf.int64, index, tf.string, line), ""
        )

    def of_bodies(self, texts: tf.Tensor, longest: int) -> tuple[tf.Tensor, tf.Tensor]:
        """(numbers, words) of the first `longest` words of each text, both of shape (texts, longest)."""
        words = split(texts)[:, :longest].to_tensor("", shape=(None, longest))
        known = self.numbers.lookup(words)
        return tf.where(words == "", tf.cast(PAD, tf.int64), self._placed(known, words, words)), words

    def of_titles(self, texts: tf.Tensor, body_words: tf.Tensor, longest: int) -> tf.Tensor:
        """The numbers of each title, including its end, given the words of its body."""
        words = split(texts)[:, : longest - 1]
        rows = tf.shape(words.row_lengths())[0]
        ended = tf.concat([words, tf.fill((rows, 1), SPECIAL[END])], axis=1).to_tensor("", (None, longest))
        numbers = self._placed(self.numbers.lookup(ended), ended, body_words)
        return tf.where(ended == "", tf.cast(PAD, tf.int64), numbers)

    def to_words(self, numbers: tf.Tensor, body_words: tf.Tensor) -> tf.Tensor:
        """The words behind numbers: from the vocabulary, or from the body."""
        places = tf.clip_by_value(numbers - self.size, 0, tf.shape(body_words, tf.int64)[1] - 1)
        copied = tf.gather(body_words, places, batch_dims=1)
        known = tf.where(numbers <= END, "", self.words.lookup(numbers))
        return tf.where(numbers < self.size, known, copied)

    def _placed(self, known: tf.Tensor, words: tf.Tensor, body_words: tf.Tensor) -> tf.Tensor:
        """`known` numbers, and for unknown words the positions where they first occur in the body."""
        names, body_names = (tf.strings.to_hash_bucket_fast(each, 2**62) for each in (words, body_words))
        same = names[:, :, None] == body_names[:, None, :]
        places = self.size + tf.argmax(same, axis=-1)
        return tf.where((known == UNKNOWN) & tf.reduce_any(same, axis=-1), places, known)
