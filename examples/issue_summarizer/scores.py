"""How good titles are compared with human ones: BLEU and ROUGE-L. Also a title that needs no model."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Sequence

Words = Sequence[bytes]


def bleu(candidates: Sequence[Words], references: Sequence[Words], longest: int = 4) -> float:
    """Corpus BLEU of lists of words, from 0 to 100, with one reference each: the geometric mean of the shares
    of 1- to 4-grams that the reference also has; less if all titles together are shorter than the references.
    As published (Papineni et al., 2002): sacrebleu gives the same for the same words."""
    right, made = [0] * longest, [0] * longest
    for candidate, reference in zip(candidates, references):
        for size in range(1, longest + 1):
            mine, theirs = stretches(candidate, size), stretches(reference, size)
            right[size - 1] += sum((mine & theirs).values())
            made[size - 1] += sum(mine.values())
    if not all(right):
        return 0.0
    length, wanted = sum(map(len, candidates)), sum(map(len, references))
    brevity = min(0.0, 1 - wanted / length)
    return 100 * math.exp(brevity + sum(math.log(hit / all_) for hit, all_ in zip(right, made)) / longest)


def stretches(words: Words, size: int) -> collections.Counter[tuple[bytes, ...]]:
    return collections.Counter(tuple(words[at : at + size]) for at in range(len(words) - size + 1))


def rouge_l(candidates: Sequence[Words], references: Sequence[Words]) -> float:
    """The mean F-measure, from 0 to 100, of the longest common subsequence with the reference."""
    total = 0.0
    for candidate, reference in zip(candidates, references):
        common = longest_common(candidate, reference)
        total += 2 * common / (len(candidate) + len(reference)) if common else 0.0
    return 100 * total / len(references)


def longest_common(one: Words, other: Words) -> int:
    row = [0] * (len(other) + 1)
    for word in one:
        before = row
        row = [0]
        for place, against in enumerate(other):
            row.append(before[place] + 1 if word == against else max(before[place + 1], row[place]))
    return row[-1]


def first_sentence(body: str) -> str:
    """A title without a model: the baseline."""
    return re.split(r"(?<=[.!?:])\s", body, maxsplit=1)[0]
