"""The latest and the best of each metric."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock.run.best_scores import Score, less_is_better
from oarlock.run.run_state import RunState


def state_after(*reports: dict[str, Any], task: str = "evaluator-0") -> RunState:
    state = RunState("r")
    for number, report in enumerate(reports):
        state.apply({"t": 1000.0 + number, "kind": "report", "task": task, "generation": 1, **report})
    return state


def test_more_is_better_but_for_losses_and_errors() -> None:
    state = state_after(
        {"step": 10, "accuracy": 0.5, "val_loss": 2.0, "note": "nan"},
        {"step": 20, "accuracy": 0.75, "val_loss": 1.0},
        {"step": 30, "accuracy": 0.625, "val_loss": 3.0, "accuracy@5": float("inf")},
    )
    assert state.scores == {
        "accuracy": Score(0.625, 30, 0.75, 20),
        "val_loss": Score(3.0, 30, 1.0, 20),
    }
    evaluator = state.tasks["evaluator-0"]
    assert (evaluator.step, evaluator.rate) == (30, None)  # of checkpoints: that is no pace
    assert RunState.from_data(state.to_data()).scores == state.scores


def test_what_a_trainer_reports_is_no_score() -> None:
    assert state_after({"step": 10, "accuracy": 0.5}, task="worker-0").scores == {}


def test_a_late_score_of_an_earlier_step_may_be_the_best_and_is_not_the_latest() -> None:
    state = state_after({"step": 20, "accuracy": 0.5})
    state.add_score({"step": 10, "accuracy": 0.75}, is_late=True)
    assert state.scores == {"accuracy": Score(0.5, 20, 0.75, 10)}


@pytest.mark.parametrize(
    ("metric", "is_so"),
    [
        *(
            (name, True)
            for name in ("loss", "val_loss", "Loss", "error", "top-1 error", "rmse", "perplexity")
        ),
        *(
            (name, False)
            for name in ("accuracy", "precision@1", "recall@5", "bleu", "closs", "terror", "auc")
        ),
    ],
)
def test_by_the_words_of_its_name(metric: str, is_so: bool) -> None:
    assert less_is_better(metric) is is_so
