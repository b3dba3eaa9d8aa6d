from __future__ import annotations

from typing import Any

import pytest

from oarlock.agent.lead.phases.restart_budget import Budget, Loss
from oarlock.screens.event_text import describe


def loss(**differs: Any) -> Loss:
    usual: dict[str, Any] = {
        "signature": "killed",
        "signalled": True,
        "progressed": False,
        "reports": True,
        "lived": 100.0,
    }
    return Loss(**{**usual, **differs})


def test_restarts_are_counted() -> None:
    budget = Budget(2)
    assert [budget.refuses(loss()) for _ in range(3)] == [
        *(None, None, "limits.restarts is 2, and all 2 are used up"),
    ]
    assert Budget(0).refuses(loss()) == "limits.restarts is 0"


def test_progress_fills_it_up() -> None:
    budget = Budget(1)
    assert [budget.refuses(loss(progressed=True)) for _ in range(9)] == [None] * 9


def test_no_progress_counts_double_for_a_program_that_reports() -> None:
    budget = Budget(3)
    errors = [loss(signalled=False, signature=text) for text in "ab"]
    assert [budget.refuses(error) for error in errors] == [
        None,
        "limits.restarts is 3, 1 is left, and a failure without a new step counts as two",
    ]


def test_a_program_that_never_reports_is_not_judged_by_progress() -> None:
    budget = Budget(3)
    errors = [loss(signalled=False, reports=False, signature=text) for text in "abcd"]
    assert [budget.refuses(error) is None for error in errors] == [True, True, True, False]


def test_memory_of_a_gpu_that_runs_out_has_one_more_try() -> None:
    """However long it lived: it computes up to the same step again."""
    full = {"signature": "memory", "signalled": False, "exhausted": True, "lived": 4000.0}
    budget = Budget(9)
    assert budget.refuses(loss(**full, progressed=True)) is None
    assert budget.refuses(loss(**full)) == "the memory of a GPU ran out twice without a new step in between"
    assert budget.refuses(loss(**full, progressed=True)) is None
    assert budget.refuses(loss()) is None  # another failure, and the next one is the first again
    assert budget.refuses(loss(**full)) is None
    assert budget.refuses(loss(**full)) is not None


def test_the_same_error_twice_is_enough() -> None:
    budget = Budget(100)
    error = loss(signalled=False, signature="ValueError|x", lived=1.0)
    assert budget.refuses(error) is None
    assert budget.refuses(error) == "it failed twice in the same way without a step in between"


def test_the_same_error_after_progress_or_a_long_time_is_another_one() -> None:
    budget = Budget(100)
    error = loss(signalled=False, signature="ValueError|x", lived=1.0)
    late = loss(signalled=False, signature="ValueError|x", lived=3600.0)
    after_progress = loss(signalled=False, signature="ValueError|x", lived=1.0, progressed=True)
    assert [budget.refuses(one) for one in (error, late, after_progress)] == [None] * 3


KILLED = loss()
KILLED_LATER = loss(progressed=True)
SILENT = [loss(signalled=False, reports=False, signature=text) for text in "abcd"]
FRUITLESS = [loss(signalled=False, signature=text) for text in "abcd"]
DOUBLED = "a failure without a new step counts as two"


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ([KILLED] * 4, ["2 left", "1 left", "0 left", "limits.restarts is 3, and all 3 are used up"]),
        (SILENT, ["2 left", "1 left", "0 left", "limits.restarts is 3, and all 3 are used up"]),
        (
            [SILENT[0], *FRUITLESS[1:3]],
            ["2 left", f"0 left: {DOUBLED}", f"limits.restarts is 3, and all 3 are used up: {DOUBLED}"],
        ),
        (FRUITLESS[:2], [f"1 left: {DOUBLED}", f"limits.restarts is 3, 1 is left, and {DOUBLED}"]),
        (
            [FRUITLESS[0], KILLED_LATER, KILLED, KILLED, KILLED],
            [
                f"1 left: {DOUBLED}",
                "2 left",
                "1 left",
                "0 left",
                "limits.restarts is 3, and all 3 are used up",
            ],
        ),
        (
            [loss(signalled=False, signature="a", lived=1.0, reports=False)] * 2,
            ["2 left", "it failed twice in the same way without a step in between"],
        ),
    ],
)
def test_what_is_left_and_why_there_is_no_more_agree(losses: list[Loss], told: list[str]) -> None:
    budget, said = Budget(3), []
    for one in losses:
        refusal = budget.refuses(one)
        event = {"kind": "restart", "left": budget.left, "reason": "x", **budget.event_fields}
        said.append(refusal or describe(event).removeprefix("x; restarting (").removesuffix(")"))
    assert said == told
