"""What is built from a record: each field has a check, and none is forgotten."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

import pytest

from oarlock.agent.protocol.spec import LimitsSpec, Program, Spec
from oarlock.engines.kubernetes.follow.pod_log import Position
from oarlock.run import typed
from oarlock.run.accounting import Accounts
from oarlock.run.gpu_facts.gpu_view import Gpus
from oarlock.run.run_state import RunState
from oarlock.run.task_state import Failure, TaskState

# Built themselves.
SECTIONS = {"scores", "gpus", "program", "limits", "tasks", "failure", "accounts", "stages", "ingest"}


@pytest.mark.parametrize(
    "kind", [Accounts, Gpus, LimitsSpec, Program, Spec, Position, Failure, RunState, TaskState]
)
def test_every_field_of_a_record_can_be_checked(kind: Any) -> None:
    kinds = {field.name: str(field.type).partition(" | ")[0] for field in fields(kind)}
    assert {name for name, one in kinds.items() if one not in typed._KINDS} <= SECTIONS


def test_a_spec_comes_back_as_it_went_and_unknown_fields_are_passed_over() -> None:
    program = Program("command", ["python", "train.py"], ["-v"])
    spec = Spec("a", "/f", "/c", program, {"worker": 2}, {"logs": "/l"}, LimitsSpec(stall=None), {"A": "b"})
    spec = replace(
        spec, gpus=Gpus({"worker-0": ["1"], "worker-1": []}, by_bus=True), members={"worker": [1, 3]}
    )
    assert Spec.from_json(spec.to_json()) == spec
    assert typed.build(LimitsSpec, {**asdict(spec.limits), "moons": 3}) == spec.limits


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", "[" * 100_000, '{"version": "x"}', '{"program": 3}']
)
def test_what_is_no_spec_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Spec.from_json(text)


def test_a_later_version_is_told_apart() -> None:
    with pytest.raises(typed.LaterVersion, match="record version 9, this one reads up to 1"):
        Spec.from_json('{"version": 9}')
