"""Which checkpoints stay."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from oarlock.checkpoints.retention import Retention
from oarlock.checkpoints.store import Checkpoint


def those(*metrics: dict[str, Any], every: int = 10) -> list[Checkpoint]:
    """One every ten steps, oldest first."""
    return [
        Checkpoint(Path(f"step-{step}-g1"), step, 1, {"metrics": told})
        for step, told in zip(range(every, 10**9, every), metrics)
    ]


def staying(retention: Retention, checkpoints: list[Checkpoint]) -> list[int]:
    expired = {one.name for one in retention.expired(checkpoints)}
    return [one.step for one in checkpoints if one.name not in expired]


def losses(*values: Any) -> list[Checkpoint]:
    return those(*({"loss": value} for value in values))


def test_the_newest_few_stay() -> None:
    assert staying(Retention(keep=2), losses(1, 1, 1, 1)) == [30, 40]
    assert staying(Retention(keep=5), losses(1, 1)) == [10, 20]
    assert staying(Retention(), []) == []


def test_every_so_many_steps_one_stays() -> None:
    assert staying(Retention(keep=1, every=20), losses(*range(5))) == [20, 40, 50]


@pytest.mark.parametrize(
    ("best", "values", "stays"),
    [
        ("loss", [3, 1, 2, 5], 20),
        ("max:loss", [3, 1, 2, 0], 10),
        ("min:loss", [3, 1, 2, 5], 20),
        ("loss", [1, 1, 2, 2], 20),  # of two equally good ones the newer
        ("loss", [math.nan, 2, math.inf, 3], 20),
        ("max:loss", [math.nan, 2, -math.inf, 1], 20),
        ("loss", ["good", None, 7, 8], 30),
    ],
)
def test_the_best_by_a_metric_stays(best: str, values: list[Any], stays: int) -> None:
    assert staying(Retention(keep=1, best=best), losses(*values)) == [stays, 40]


def test_a_metric_that_nobody_reported_keeps_nothing_more() -> None:
    assert staying(Retention(keep=1, best="accuracy"), losses(1, 2, 3)) == [30]


def test_rules_add_up() -> None:
    checkpoints = losses(0.1, 5, 5, 5, 5, 5, 5)
    assert staying(Retention(keep=2, every=30, best="loss"), checkpoints) == [10, 30, 60, 70]


@pytest.mark.parametrize(("wrong", "said"), [({"keep": 0}, "keep=0"), ({"every": 0}, "keep_every=0")])
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Retention(**wrong)


def test_the_evaluator_s_values_count_as_soon_as_there_are_any() -> None:
    checkpoints, rule = losses(9, 1, 2, 3), Retention(keep=1, best="loss")
    scored = {"step-10-g1": {"loss": 0.5}, "step-20-g1": {"loss": 0.7}, "step-30-g1": {"accuracy": 1.0}}
    assert {one.step for one in rule.expired(checkpoints, scored)} == {20, 30}
    scored = {"step-10-g1": {"accuracy": 0.5}}
    assert {one.step for one in rule.expired(checkpoints, scored)} == {10, 30}


def test_the_oldest_five_wait_for_an_evaluator_that_is_at_work() -> None:
    checkpoints, rule = losses(*range(9)), Retention(keep=1, best="max:accuracy")
    scored = {"step-10-g1": {"accuracy": 0.1}, "step-20-g1": {"accuracy": 0.2}}
    assert {one.step for one in rule.expired(checkpoints, scored, is_followed=True)} == {10, 80}
    assert {one.step for one in rule.expired(checkpoints, scored)} == {10, 30, 40, 50, 60, 70, 80}
    newest = Retention(keep=1)  # nothing depends on a score: nothing waits for one
    assert len(newest.expired(checkpoints, scored, is_followed=True)) == 8
