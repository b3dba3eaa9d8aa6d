"""Which token comes next: the options of a request, and the draw from a model's scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array


@dataclass(frozen=True)
class Sampling:
    """How a text is written."""

    max_tokens: int = 16
    temperature: float = 1.0  # 0: always the likeliest token
    top_p: float = 1.0  # only the likeliest tokens that together have this probability
    top_k: int = 0  # only this many of the likeliest tokens; 0: all
    seed: int | None = None  # the same seed, the same text
    stop: tuple[str, ...] = ()  # the text ends before any of these
    logprobs: int | None = None  # report the log probability of each token and of this many of the likeliest


def draw(scores: Array, samplings: Sequence[Sampling], chances: Sequence[float]) -> list[int]:
    """Return the next token for each row of scores. `chances` has a random number from 0 to 1 for each.

    A row's token depends only on that row, so a text does not depend on the texts written beside it.
    """
    import numpy as np

    tokens = scores.argmax(axis=1)
    rows = [row for row, sampling in enumerate(samplings) if sampling.temperature > 0]
    if rows:
        weights = scores[rows].astype(np.float64)
        weights -= weights.max(axis=1, keepdims=True)
        with np.errstate(over="ignore"):  # a temperature of almost 0: the others have no chance
            weights = np.exp(weights / np.array([[samplings[row].temperature] for row in rows]))
        for index, row in enumerate(rows):
            if samplings[row].top_k or samplings[row].top_p < 1:
                _leave_out(weights[index], samplings[row])
        sums = weights.cumsum(axis=1)
        drawn = np.array([[chances[row]] for row in rows]) * sums[:, -1:]
        tokens[rows] = (sums > drawn).argmax(axis=1)
    return [int(token) for token in tokens]


def log_chances(scores: Array) -> Array:
    """Return the log probability of every token, at temperature 1, for one row of scores."""
    import numpy as np

    wide = scores.astype(np.float64)
    wide -= wide.max()
    found: Array = wide - np.log(np.exp(wide).sum())
    return found


def _leave_out(weights: Array, sampling: Sampling) -> None:
    """Set the weights of tokens that must not be drawn to 0."""
    order = (-weights).argsort(kind="stable")
    if sampling.top_k:
        weights[order[sampling.top_k :]] = 0
    if sampling.top_p < 1:
        ranked = weights[order]
        # Drop whatever comes after enough of them. Nothing comes before the first, so it always stays.
        is_beyond = ranked.cumsum() - ranked > sampling.top_p * ranked.sum()
        weights[order[is_beyond]] = 0
