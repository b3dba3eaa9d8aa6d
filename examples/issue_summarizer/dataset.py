"""The pairs that ingest.py prepared: TFRecord shards of numbers, the vocabulary, and the texts.

A record is the numbers of a body's words and of its title's, padded to a fixed length, two bytes each.
`dataset.json` describes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

DESCRIPTION = "dataset.json"  # written last: if it exists, everything does
VOCABULARY = "vocabulary.txt"


@dataclass(frozen=True)
class Dataset:
    folder: Path
    source: str
    vocabulary: int  # words in it
    body: int  # words of a body that are read
    title: int  # words of a title, including its end
    counts: dict[str, int]  # pairs by part: train, validation, test
    shards: dict[str, list[str]]  # file names by part

    @property
    def vocabulary_file(self) -> str:
        return str(self.folder / VOCABULARY)

    def batches(self, part: str, size: int) -> tf.data.Dataset:
        """The part's (bodies, titles), in the order of the shards. The last batch may be smaller."""
        files = [str(self.folder / name) for name in self.shards[part]]
        return tf.data.TFRecordDataset(files).batch(size).map(self._parse)

    def whole(self, part: str) -> tf.data.Dataset:
        """The whole part as one batch."""
        return self.batches(part, self.counts[part])

    def texts(self, part: str) -> tuple[list[str], list[str]]:
        """The part's (bodies, titles) as text, in the same order."""
        with open(self.folder / f"{part}.jsonl", encoding="utf-8") as lines:
            pairs = [json.loads(line) for line in lines]
        return [pair["body"] for pair in pairs], [pair["title"] for pair in pairs]

    def _parse(self, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        numbers = tf.cast(tf.io.decode_raw(records, tf.uint16), tf.int32)
        numbers = tf.reshape(numbers, (-1, self.body + self.title))
        return numbers[:, : self.body], numbers[:, self.body :]


def read(folder: str) -> Dataset:
    path = Path(folder) / DESCRIPTION
    try:
        return Dataset(Path(folder), **json.loads(path.read_text()))
    except FileNotFoundError:
        raise SystemExit(
            f"There is no {path}. Prepare the pairs first: python ingest.py --out {folder}"
        ) from None
