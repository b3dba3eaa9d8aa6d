"""Prepare pairs of a sentence and its translation: read them, hold some out, make a vocabulary of pieces.

    python ingest.py --out data                               the catalogs of this machine's programs
    python ingest.py --out data --source pairs.tsv            your own, by path or URL
    python ingest.py --out data --source some.pt,some.en      the same as two files
    python ingest.py ... --vocabulary vocabulary.txt          with the pieces of a trained model

`oarlock run` does this first, once.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path

import catalogs
import dataset
import pairs
import pieces

import oarlock

ENOUGH = 5000  # pairs on this machine; with fewer, packages from the registry are read as well


def main() -> None:
    args = arguments()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / dataset.DESCRIPTION).unlink(missing_ok=True)
    found = pairs.cleaned(read(args, out))[: args.sample]  # in checksum order: a random sample
    parts = pairs.divided(found, args.holdout)
    if not all(parts.values()):
        raise SystemExit(
            f"{len(found)} pairs that can be used are too few to train on some and hold out others."
        )
    if args.vocabulary:
        vocabulary = reused(args.vocabulary, kept_in(out))
    else:
        vocabulary = pieces.train((text for pair in parts["train"] for text in pair), args.pieces)
    pieces.write(out, vocabulary)
    tokenizer = pieces.load(out)
    counts: dict[str, int] = {}
    dropped = 0
    for part, chosen in parts.items():
        numbered = zip(chosen, *(pieces.numbers(tokenizer, side) for side in zip(*chosen)))
        kept = [each for each in numbered if max(len(each[1]), len(each[2])) <= args.longest]
        if not kept:
            raise SystemExit(f"No pair of the {part} part has {args.longest} pieces or fewer: see --longest")
        dropped += len(chosen) - len(kept)
        dataset.write(out, part, *zip(*kept))
        counts[part] = len(kept)
    described = {"source": args.source, "vocabulary": len(vocabulary), "longest": args.longest}
    (out / dataset.DESCRIPTION).write_text(json.dumps({**described, "counts": counts}, indent=1))
    print(
        f"{counts['train']:,} pairs to train on, {counts['validation']:,} to validate, {counts['test']:,}"
        f" held out, {dropped:,} too long, {len(vocabulary):,} pieces"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prepare pairs of a sentence and its translation")
    parser.add_argument("--out", default=str(oarlock.current().data), help="folder; default: DATA_DIR")
    parser.add_argument(
        "--source",
        default="catalogs",
        help="a TSV file or two text files (with a comma), by path or URL; default: what this machine has",
    )
    parser.add_argument("--columns", default="1,2", help="of the TSV file: source, target")
    parser.add_argument("--sample", type=int, help="use so many pairs; default: all")
    parser.add_argument(
        "--holdout", type=float, default=0.03, help="share to validate, and share for the test"
    )
    parser.add_argument("--pieces", type=int, default=5000, help="of the vocabulary")
    parser.add_argument("--vocabulary", help="use the pieces in this file (path or URL), as a model does")
    parser.add_argument(
        "--longest", type=int, default=48, help="pieces of a sentence; pairs with a longer one are left out"
    )
    return parser.parse_args()


def read(args: argparse.Namespace, out: Path) -> Iterable[tuple[str, str]]:
    kept = kept_in(out)
    if args.source == "catalogs":
        found = list(catalogs.of_this_machine())
        if len(found) < ENOUGH:
            print(f"{len(found):,} pairs in the catalogs of this machine: reading packages of the registry")
            found += catalogs.of_packages(kept / "packages")
        return found
    named = [beside(name, kept) for name in args.source.split(",")]
    if len(named) > 2:
        raise SystemExit(f"--source {args.source}: name one file, or two with a comma between them")
    return pairs.from_files([pairs.fetch(name, kept / "fetched") for name in named], columns_of(args.columns))


def reused(source: str, kept: Path) -> list[str]:
    """The vocabulary that another ingest made, so that weights trained with it keep their meaning."""
    file = pairs.fetch(beside(source, kept), kept / "fetched", "--vocabulary takes a file of pieces")
    found = pieces.read(file)
    if not pieces.is_vocabulary(found):
        raise SystemExit(
            f"{source} is no vocabulary that ingest.py wrote: one piece per line, each once,"
            f" and the first are {', '.join(pieces.SPECIAL)}.\n"
            "Name the vocabulary.txt of prepared pairs, or of an exported model (in model/1/assets)."
        )
    return found


def kept_in(out: Path) -> Path:
    """The folder of files from elsewhere: under `oarlock run` what the job's `ingest.sources` declares."""
    return Path(os.environ.get("SOURCES_DIR") or out)


def beside(name: str, kept: Path) -> str:
    """The path of a file that is there already; any other name as it is."""
    return str(kept / name) if (kept / name).is_file() else name


def columns_of(text: str) -> list[int]:
    columns = [int(column) for column in text.split(",") if column.isdigit() and int(column)]
    if len(columns) != 2:
        raise SystemExit(f"--columns {text}: give the places of source and target, counted from 1, as in 1,2")
    return columns


if __name__ == "__main__":
    main()
