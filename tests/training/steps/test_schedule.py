"""When to save, as a user says it."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock.training.steps import schedule
from oarlock.training.steps.schedule import Schedule


@pytest.mark.parametrize(
    ("save", "expected"),
    [
        (100, Schedule(steps=100)),
        (1, Schedule(steps=1)),
        ("30s", Schedule(seconds=30)),
        ("500ms", Schedule(seconds=0.5)),
        ("1.5m", Schedule(seconds=90)),
        ("2 h", Schedule(seconds=7200)),
        ("epoch", Schedule(steps=25)),
        (None, Schedule()),
    ],
)
def test_the_ways_to_say_it(save: Any, expected: Schedule) -> None:
    assert schedule.read(save, epoch=25) == expected


@pytest.mark.parametrize("save", [0, -1, True, 1.5, "", "30", "0s", "-3s", "often", "30 s please", "s", []])
def test_what_cannot_be_understood_is_refused_and_says_what_can(save: Any) -> None:
    with pytest.raises(ValueError, match='expected a number of steps, a time like "30s" or "5m", or "epoch"'):
        schedule.read(save)


def test_an_epoch_has_to_be_known() -> None:
    with pytest.raises(ValueError, match="pass batches="):
        schedule.read("epoch")


def test_steps_are_counted_from_the_beginning_of_the_run() -> None:
    """Not from where it went on: then all ranks, and every attempt, save before the same ones."""
    due = [step for step in range(1, 101) if Schedule(steps=30).is_due(step)]
    assert due == [30, 60, 90]
    assert not any(Schedule(seconds=1).is_due(step) for step in range(100))
    assert not any(Schedule().is_due(step) for step in range(100))
