"""The images that ingest.py prepared: TFRecord shards, and `dataset.json`, which describes them.

Each record is a tf.train.Example with the raw pixels and the number of the class.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

DESCRIPTION = "dataset.json"  # written last: if it exists, everything does


@dataclass(frozen=True)
class Dataset:
    folder: Path
    source: str
    labels: list[str]  # names of the classes
    shape: list[int]  # height, width, channels
    counts: dict[str, int]  # images by part: train, test
    shards: dict[str, list[str]]  # file names by part

    def files(self, part: str) -> list[str]:
        return [str(self.folder / name) for name in self.shards[part]]

    def batches(self, part: str, size: int) -> tf.data.Dataset:
        """The part's images and labels, in the order of the shards. The last batch may be smaller."""
        records = tf.data.TFRecordDataset(self.files(part))
        return records.batch(size).map(self._parse)

    def whole(self, part: str) -> tf.data.Dataset:
        """The whole part as one batch."""
        return self.batches(part, self.counts[part])

    def _parse(self, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        fields = {
            "image": tf.io.FixedLenFeature((), tf.string),
            "label": tf.io.FixedLenFeature((), tf.int64),
        }
        found = tf.io.parse_example(records, fields)
        pixels = tf.reshape(tf.io.decode_raw(found["image"], tf.uint8), (-1, *self.shape))
        return pixels, tf.cast(found["label"], tf.int32)


def read(folder: str) -> Dataset:
    path = Path(folder) / DESCRIPTION
    try:
        return Dataset(Path(folder), **json.loads(path.read_text()))
    except FileNotFoundError:
        raise SystemExit(
            f"There is no {path}. Prepare the images first: python ingest.py --out {folder}"
        ) from None


def to_record(pixels: bytes, label: int) -> bytes:
    """One image in its stored form."""
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[pixels]))
    kind = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    features = tf.train.Features(feature={"image": image, "label": kind})
    return tf.train.Example(features=features).SerializeToString()


def augmented(images: tf.Tensor, chosen: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """The chosen images, each randomly mirrored, and shifted by up to a fourteenth of its size. Every image
    of the whole set has its own draw, so it does not matter which worker asks for which."""
    count, height, width = (tf.shape(images)[axis] for axis in range(3))

    def draw(which: int, low: tf.Tensor | int, high: tf.Tensor | int) -> tf.Tensor:
        numbers = tf.random.stateless_uniform(
            (count,), tf.stack([seed[0] + which, seed[1]]), low, high, tf.int32
        )
        return tf.gather(numbers, chosen)

    images = tf.gather(images, chosen)
    images = tf.where(draw(0, 0, 2)[:, None, None, None] == 0, images[:, :, ::-1], images)
    for axis, size in ((1, height), (2, width)):
        most = size // 14
        by = draw(axis, -most, most + 1)[:, None]
        where = tf.clip_by_value(tf.range(size)[None] + by, 0, size - 1)  # repeats the edge
        images = tf.gather(images, where, axis=axis, batch_dims=1)
    return images
