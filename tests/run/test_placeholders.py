from __future__ import annotations

import pytest

from oarlock.job.model import FieldError, parse
from oarlock.run.cluster import form
from oarlock.run.contract import Gang
from oarlock.run.placeholders import fill, used

TASKS = form({"worker": 2, "evaluator": 1})
GANG = Gang("run-abcd", 1, TASKS, {task.name: f"10.0.0.{n}:70" for n, task in enumerate(TASKS)})


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("{rank}", "1"),
        ("--rank={rank}/{world}", "--rank=1/2"),
        ("tcp://{coordinator}", "tcp://10.0.0.0:70"),
        ("{{rank}}", "{rank}"),
        ("{{rank}} is {rank}", "{rank} is 1"),
        ('{"rank":{rank}}', '{"rank":1}'),
        ('{"world": {"rank": {}}, "a": [{}]}', '{"world": {"rank": {}}, "a": [{}]}'),
        ("{ rank } {Rank} {rank!r} {ranks} {0} {} ${rank", "{ rank } {Rank} {rank!r} {ranks} {0} {} ${rank"),
    ],
)
def test_only_the_exact_names_are_replaced(written: str, filled: str) -> None:
    assert fill([written], GANG, TASKS[1]) == [filled]


def test_what_a_task_does_not_have_stays_as_it_is_written() -> None:
    assert fill(["{rank} {world} {coordinator}"], GANG, TASKS[2]) == ["{rank} 2 {coordinator}"]


def test_a_literal_does_not_count_as_used() -> None:
    assert used(["{{rank}}", "{world}", "x{coordinator}y", '{"rank": 1}']) == {"world", "coordinator"}


def test_a_job_with_a_role_that_has_no_rank_is_refused() -> None:
    job = {"program": "train.py", "roles": {"worker": 2, "evaluator": 1}}
    assert parse({**job, "args": ["{world}", "{{rank}}"]}).args == ("{world}", "{{rank}}")
    with pytest.raises(
        FieldError, match=r"args: \{coordinator\} has no value in evaluator, which has no rank"
    ):
        parse({**job, "args": ["--url={coordinator}"]})
