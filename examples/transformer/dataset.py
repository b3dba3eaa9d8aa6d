"""The pairs that ingest.py prepared: numbers of pieces in NumPy files, the vocabulary, and the texts.

`Buckets` decides which of them a step trains on: pairs of similar length, so that there is little padding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pieces
from pairs import Pair

import oarlock

DESCRIPTION = "dataset.json"  # written last: if it exists, everything does
BOUNDS = (8, 12, 16, 24, 32, 48, 64, 96)  # pieces of the longer side of a pair, including its end
SHARES = 12  # the pairs of a step are a multiple of it: 1, 2, 3, 4, 6 or 12 workers can share them

Batch = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]  # inputs, targets, weights


@dataclass(frozen=True)
class Dataset:
    folder: Path
    source: str
    vocabulary: int  # pieces in it
    longest: int  # pieces of a sentence, including its end
    counts: dict[str, int]  # pairs by part: train, validation, test

    @property
    def vocabulary_file(self) -> Path:
        return self.folder / pieces.VOCABULARY

    def numbers(self, part: str) -> Numbers:
        """The part's pairs as numbers."""
        with np.load(self.folder / f"{part}.npz") as stored:
            return Numbers(*(stored[name] for name in ("sources", "source_ends", "targets", "target_ends")))

    def texts(self, part: str) -> tuple[list[str], list[str]]:
        """The part's (sources, targets) as text, in the same order."""
        with open(self.folder / f"{part}.jsonl", encoding="utf-8") as lines:
            pairs = [json.loads(line) for line in lines]
        return [pair["source"] for pair in pairs], [pair["target"] for pair in pairs]


def read(folder: str) -> Dataset:
    path = Path(folder) / DESCRIPTION
    try:
        return Dataset(Path(folder), **json.loads(path.read_text()))
    except FileNotFoundError:
        raise SystemExit(
            f"There is no {path}. Prepare the pairs first: python ingest.py --out {folder}"
        ) from None


def write(
    folder: Path,
    part: str,
    pairs: Iterable[Pair],
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
) -> None:
    stored: dict[str, Any] = {}
    for name, rows in (("source", sources), ("target", targets)):
        stored[f"{name}s"] = np.concatenate([np.array(row, "uint16") for row in rows])
        stored[f"{name}_ends"] = np.cumsum([len(row) for row in rows])
    np.savez(folder / f"{part}.npz", **stored)
    with open(folder / f"{part}.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(pair._asdict(), ensure_ascii=False) + "\n" for pair in pairs)


class Numbers:
    """Sentences as numbers, one after another, and where each ends."""

    def __init__(
        self, sources: np.ndarray, source_ends: np.ndarray, targets: np.ndarray, target_ends: np.ndarray
    ) -> None:
        self.sources, self.targets = (
            np.split(*both) for both in zip((sources, targets), (source_ends, target_ends))
        )
        self.sources, self.targets = self.sources[:-1], self.targets[:-1]

    def lengths(self) -> np.ndarray:
        """The length of the longer side of each pair."""
        return np.array([max(map(len, pair)) for pair in zip(self.sources, self.targets)])

    def batch(self, chosen: Sequence[int] | np.ndarray, length: int) -> Batch:
        """The batch in Keras's format: the inputs, the targets, and the weights.

        The decoder input is the target shifted by one position: it starts with START.
        """
        sources = filled([self.sources[place] for place in chosen], length)
        targets = filled([self.targets[place] for place in chosen], length)
        seen = np.concatenate([np.full((len(chosen), 1), pieces.START, "int32"), targets[:, :-1]], axis=1)
        weights = (targets != pieces.PAD).astype("float32")
        return {"source": sources, "target": seen}, targets, weights


def filled(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
    numbers = np.full((len(rows), length), pieces.PAD, "int32")
    for row, found in zip(numbers, rows):
        row[: len(found)] = found
    return numbers


class Buckets:
    """Which pairs a step trains on. It depends only on seed and step, so there is no iterator to save.

    Each step takes pairs of one bucket, about `tokens` pieces of each language. An epoch has all steps of all
    buckets, shuffled.
    """

    def __init__(self, lengths: np.ndarray, tokens: int, seed: int = 0) -> None:
        # (length, indices of its pairs, their batches)
        self.buckets: list[tuple[int, np.ndarray, oarlock.data.Batches]] = []
        # The steps of an epoch, before they are shuffled: (bucket, batch in it)
        self.steps: list[tuple[int, int]] = []
        waiting = np.array([], int)  # pairs too few for a step join the next longer ones
        for shorter, length in zip((0, *BOUNDS), BOUNDS):
            waiting = np.concatenate([waiting, np.flatnonzero((lengths > shorter) & (lengths <= length))])
            rows = min(tokens // length, len(waiting)) // SHARES * SHARES
            if rows:
                batches = oarlock.data.Batches(len(waiting), rows, seed=seed)
                self.steps += [(len(self.buckets), number) for number in range(batches.steps_per_epoch)]
                self.buckets.append((length, waiting, batches))
                waiting = np.array([], int)
        if not self.steps:
            raise SystemExit(
                f"{len(lengths)} pairs are too few: a step needs {SHARES} of about the same length."
            )
        self.shuffled = oarlock.data.Batches(len(self.steps), 1, seed=seed)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.steps)

    def mine(self, step: int, rank: int | None = None, world: int | None = None) -> tuple[np.ndarray, int]:
        """(indices of this worker's pairs, length to pad them to)."""
        (chosen,) = self.shuffled.indices(step)
        bucket, number = self.steps[chosen]
        length, places, batches = self.buckets[bucket]
        number += step // self.steps_per_epoch * batches.steps_per_epoch
        return places[batches.mine(number, rank=rank, world=world)], length
