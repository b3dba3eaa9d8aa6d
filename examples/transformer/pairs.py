"""Pairs of a sentence and its translation: read from files, cleaned, and split so that no held-out pair
is in training, not even a near copy.
"""

from __future__ import annotations

import collections
import gzip
import hashlib
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PARTS = ("train", "validation", "test")
LONGEST = 40  # words
HOLES = re.compile(r"%(?:\d+\$|\(\w+\))?[-+ #0]*[\d.*]*(?:hh|h|ll|l|z|j|t|L)?[A-Za-z%]|\{\w*\}")
MARKUP = re.compile(r"</?[A-Za-z]|&[a-z]+;|\\[nt]")


class Pair(NamedTuple):
    source: str
    target: str


def cleaned(found: Iterable[tuple[str, str]]) -> list[Pair]:
    """The pairs that are fit to learn from, each once, in checksum order: a shuffle that is the
    same everywhere."""
    kept = {Pair(*(" ".join(text.split()) for text in pair)) for pair in found}
    return sorted(filter(is_fit, kept), key=lambda pair: digest("\t".join(pair)))


def is_fit(pair: Pair) -> bool:
    source, target = map(words, pair)
    if not 2 <= len(source) <= LONGEST or not 2 <= len(target) <= LONGEST:
        return False
    if source == target or MARKUP.search(pair.source) or MARKUP.search(pair.target):
        return False
    letters = sum(map(len, source)) / len(pair.source)
    # If sentence and translation have different placeholders, they do not belong together.
    return letters > 0.5 and sorted(HOLES.findall(pair.source)) == sorted(HOLES.findall(pair.target))


def words(text: str) -> list[str]:
    """In lower case, without numbers, punctuation and placeholders."""
    return re.findall(r"[^\W\d_]+", HOLES.sub(" ", text).lower())


def divided(found: Sequence[Pair], share: float) -> dict[str, list[Pair]]:
    """Pairs by part. `share` of them are for the test; validation gets as many.

    Pairs that say the same, or nearly, are in the same part: those whose sources or whose targets have the
    same words, or differ in one of them. The checksum of their first source decides which part.
    """
    groups = grouped(found)
    parts: dict[str, list[int]] = {part: [] for part in PARTS}
    for members in groups:
        first = min(" ".join(words(found[member].source)) for member in members)
        number = int(digest(first)[:8], 16) / 2**32
        held = len(members) <= max(1, share * len(found) / 10)  # a large group would be most of the test
        part = "test" if number < share else "validation" if number < 2 * share else "train"
        parts[part if held else "train"] += members
    return {part: [found[member] for member in sorted(members)] for part, members in parts.items()}


def grouped(found: Sequence[Pair]) -> list[list[int]]:
    """The indices of pairs that say nearly the same, as lists."""
    leader = list(range(len(found)))

    def leading(place: int) -> int:
        while leader[place] != place:
            leader[place] = leader[leader[place]]
            place = leader[place]
        return place

    known: dict[tuple[int, tuple[str | None, ...]], int] = {}
    for place, pair in enumerate(found):
        for side, text in enumerate(pair):
            for likeness in likenesses(words(text)):
                other = known.setdefault((side, likeness), place)
                leader[leading(place)] = leading(other)
    groups: dict[int, list[int]] = collections.defaultdict(list)
    for place in range(len(found)):
        groups[leading(place)].append(place)
    return list(groups.values())


def likenesses(found: Sequence[str]) -> Iterator[tuple[str | None, ...]]:
    """What nearly equal sentences have in common: all words, or all but one of four or more."""
    yield tuple(found)
    if len(found) >= 4:
        for place in range(len(found)):
            yield (*found[:place], None, *found[place + 1 :])


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def from_files(files: Sequence[Path], columns: Sequence[int]) -> list[Pair]:
    """Pairs from a file with tab-separated columns, or from two files with one sentence per line. `columns`
    are the positions of source and target in the first kind, counted from 1."""
    lines = [read(file) for file in files]
    if len(files) == 2:
        if len(lines[0]) != len(lines[1]):
            raise SystemExit(
                f"{files[0]} has {len(lines[0]):,} lines and {files[1]} {len(lines[1]):,}:"
                " line by line, one has to be the translation of the other."
            )
        return list(map(Pair, *lines))
    rows = [line.split("\t") for line in lines[0]]
    found = [Pair(*(row[column - 1] for column in columns)) for row in rows if len(row) >= max(columns)]
    if not found:
        raise SystemExit(
            f"{files[0]} has no line with {max(columns)} columns that tabs separate.\n"
            "Name those of source and target, counted from 1: --columns 1,2"
        )
    return found


def read(file: Path) -> list[str]:
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8", errors="replace") as lines:
        return [line.rstrip("\n") for line in lines]


def fetch(source: str, folder: Path, taken: str = "--source takes a TSV file or two text files") -> Path:
    """The file at `source`: a path is used directly, a URL is downloaded into `folder`. `taken`: what the
    option takes."""
    if not re.match(r"https?://", source):
        if not Path(source).is_file():
            raise SystemExit(f"There is no file {source}. {taken}, by path or URL.")
        return Path(source)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest(source)[:8]}-{source.rpartition('/')[2]}"
    partial = path.with_name(path.name + ".partial")
    try:
        with urllib.request.urlopen(source, timeout=60) as answer, open(partial, "wb") as file:
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, OSError) as error:
        raise SystemExit(f"{source} could not be downloaded: {error}") from None
    return partial.rename(path)
