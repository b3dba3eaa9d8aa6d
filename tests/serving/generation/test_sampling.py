"""The draw: by chance as told, and of one row alone."""

from __future__ import annotations

from collections import Counter

import numpy as np

from oarlock.serving.generation.sampling import Sampling, draw, log_chances

# Chances of 1/2, 1/4, 1/8, 1/8.
SCORES = np.log(np.array([0.125, 0.5, 0.125, 0.25], np.float32))
GRID = [(number + 0.5) / 800 for number in range(800)]


def drawn(sampling: Sampling) -> Counter[int]:
    """How often each token comes, over an even grid of random numbers."""
    return Counter(draw(np.tile(SCORES, (len(GRID), 1)), [sampling] * len(GRID), GRID))


def test_tokens_come_as_often_as_their_chances_say() -> None:
    assert drawn(Sampling()) == {1: 400, 3: 200, 0: 100, 2: 100}


def test_temperature_0_is_the_likeliest() -> None:
    assert drawn(Sampling(temperature=0)) == {1: 800}
    assert drawn(Sampling(temperature=1e-320)) == {1: 800}


def test_a_low_temperature_sharpens() -> None:
    squares = {1: 16, 3: 4, 0: 1, 2: 1}  # in 22 parts
    found = drawn(Sampling(temperature=0.5))
    assert all(abs(found[token] - 800 * part / 22) <= 1 for token, part in squares.items())


def test_top_k_leaves_the_likeliest_few() -> None:
    assert drawn(Sampling(top_k=1)) == {1: 800}
    assert drawn(Sampling(top_k=2)).keys() == {1, 3}
    assert drawn(Sampling(top_k=9)).keys() == {0, 1, 2, 3}


def test_top_p_leaves_those_that_together_have_this_chance() -> None:
    assert drawn(Sampling(top_p=0.4)).keys() == {1}
    assert drawn(Sampling(top_p=0.6)).keys() == {1, 3}
    assert drawn(Sampling(top_p=0.8)).keys() == {0, 1, 3}
    assert drawn(Sampling(top_p=0.0)) == {1: 800}


def test_a_row_does_not_depend_on_those_beside_it() -> None:
    random = np.random.default_rng(0)
    scores = random.standard_normal((16, 256)).astype(np.float32)
    kinds = (Sampling(), Sampling(temperature=0), Sampling(top_k=3), Sampling(temperature=0.3, top_p=0.8))
    samplings = [kinds[row % 4] for row in range(16)]
    chances = [float(chance) for chance in random.random(16)]
    alone = [draw(scores[row : row + 1], [samplings[row]], [chances[row]])[0] for row in range(16)]
    assert draw(scores, samplings, chances) == alone


def test_chances_as_logarithms() -> None:
    assert np.allclose(log_chances(SCORES * 3 + 5), np.log(np.exp(SCORES * 3) / np.exp(SCORES * 3).sum()))
