"""Prepare pairs of a body and its title: read them, hold some out, number their words, write TFRecord shards.

    python ingest.py --out data                                      texts of the installed packages
    python ingest.py --out data --source issues.csv --sample 200000  your own, by path or URL

`oarlock run` does this first, once.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import dataset
import numpy as np
import pairs
import tensorflow as tf
import words

import oarlock

PARTS = ("train", "validation", "test")
COLUMNS = "issue_title,body"  # as in the recipe's file
CHUNK = 4096  # texts at a time


def main() -> None:
    args = arguments()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / dataset.DESCRIPTION).unlink(missing_ok=True)
    found = pairs.cleaned(read(args, out))[: args.sample]  # in checksum order: a random sample
    parts: dict[str, list[pairs.Pair]] = {part: [] for part in PARTS}
    for pair in found:
        parts[pairs.part_of(pair, args.holdout)].append(pair)
    if not all(parts.values()):
        raise SystemExit(
            f"{len(found)} pairs that can be used are too few to train on some and hold out others."
        )
    vocabulary = words.count(
        [text for pair in parts["train"] for text in (pair.body, pair.title)], args.words
    )
    (out / dataset.VOCABULARY).write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
    table = words.Vocabulary(str(out / dataset.VOCABULARY), len(vocabulary))
    counts = {part: len(chosen) for part, chosen in parts.items()}
    shards = {}
    for part, chosen in parts.items():
        number = args.shards if part == "train" else 1
        bounds = [len(chosen) * at // number for at in range(number + 1)]
        shards[part] = [f"{part}-{at:03d}-of-{number:03d}.tfrecord" for at in range(number)]
        for file, start, end in zip(shards[part], bounds, bounds[1:]):
            write(out / file, chosen[start:end], table, args)
        with open(out / f"{part}.jsonl", "w", encoding="utf-8") as texts:
            texts.writelines(json.dumps({"title": pair.title, "body": pair.body}) + "\n" for pair in chosen)
    described = {"source": args.source, "vocabulary": len(vocabulary), "body": args.body, "title": args.title}
    described.update(counts=counts, shards=shards)
    (out / dataset.DESCRIPTION).write_text(json.dumps(described, indent=1))
    print(
        f"{counts['train']:,} pairs to train on, {counts['validation']:,} to validate,"
        f" {counts['test']:,} held out, {len(vocabulary):,} words"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prepare pairs of a body and its title")
    parser.add_argument("--out", default=str(oarlock.current().data), help="folder; default: DATA_DIR")
    parser.add_argument(
        "--source", default="installed", help="a CSV file by path or URL; default: what is installed"
    )
    parser.add_argument("--columns", default=COLUMNS, help="of the CSV file: title, body")
    parser.add_argument("--sample", type=int, help="use so many pairs; default: all")
    parser.add_argument(
        "--holdout", type=float, default=0.04, help="share to validate, and share for the test"
    )
    parser.add_argument("--words", type=int, default=6000, help="of the vocabulary")
    parser.add_argument("--body", type=int, default=64, help="words of a body to read")
    parser.add_argument("--title", type=int, default=16, help="words of a title, at most")
    parser.add_argument("--shards", type=int, default=4, help="files to train on")
    return parser.parse_args()


def read(args: argparse.Namespace, out: Path) -> Iterable[pairs.Pair]:
    if args.source == "installed":
        return pairs.installed()
    # Under `oarlock run`, SOURCES_DIR has what the job's `ingest.sources` declares.
    kept = Path(os.environ.get("SOURCES_DIR") or out)
    source = str(kept / args.source) if (kept / args.source).is_file() else args.source
    columns = args.columns.split(",")
    if len(columns) != 2:
        raise SystemExit(
            f"--columns {args.columns}: name two, those of title and body, with a comma between them"
        )
    return pairs.from_csv(pairs.fetch(source, kept / "fetched"), columns)


def write(
    path: Path, chosen: Sequence[pairs.Pair], table: words.Vocabulary, args: argparse.Namespace
) -> None:
    with tf.io.TFRecordWriter(str(path)) as file:
        for start in range(0, len(chosen), CHUNK):
            some = chosen[start : start + CHUNK]
            bodies, spelled = table.of_bodies(tf.constant([pair.body for pair in some]), args.body)
            titles = table.of_titles(tf.constant([pair.title for pair in some]), spelled, args.title)
            for row in np.concatenate([bodies, titles], axis=1).astype("<u2"):
                file.write(row.tobytes())


if __name__ == "__main__":
    main()
