"""Events: what is written is read back, and what makes no sense is left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oarlock.run.run_events import decode, encode, read
from tests.support.known_events import KNOWN


@pytest.mark.parametrize("torn", ["", "{", '{"kind":"task"}', "[]", '"text"', '{"t":1,"kind":"ta', "null"])
def test_a_torn_line_is_no_event(torn: str) -> None:
    assert decode(torn) is None


def test_numbers_that_json_does_not_know_stay_readable() -> None:
    line = encode(
        {"t": 1.0, "kind": "report", "loss": float("nan"), "more": [float("inf"), {"x": float("-inf")}]}
    )
    assert json.loads(line)["loss"] == "nan"
    assert "NaN" not in line
    assert "Infinity" not in line


@pytest.mark.parametrize("told", KNOWN, ids=lambda told: told["kind"])
def test_what_agents_write_is_read_as_it_is(told: dict[str, Any]) -> None:
    event = {"t": 100.5, **told}
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"kind": "report", "task": "worker-0", "busy": "high"}, {"kind": "report", "task": "worker-0"}),
        ({"kind": "report", "task": "w-0", "step": 3.0}, {"kind": "report", "task": "w-0", "step": 3}),
        ({"kind": "report", "task": "w-0", "step": 10**400}, {"kind": "report", "task": "w-0"}),
        ({"kind": "report", "task": "w-0", "total": True}, {"kind": "report", "task": "w-0"}),
        ({"kind": "note", "text": "\ud800"}, {"kind": "note", "text": "\\ud800"}),
        ({"kind": "scale", "workers": -1}, {"kind": "scale"}),
        ({"kind": "eclipse", "moon": [1]}, {"kind": "eclipse", "moon": [1]}),
        ({"kind": "task"}, None),
        ({"kind": "task", "task": "../../x", "state": "started"}, None),
        ({"kind": "generation", "generation": "second"}, None),
        ({"kind": "end", "state": None}, None),
        ({"kind": ["run"]}, None),
        ({"kind": "note", "text": "x", "t": float("nan")}, None),
        ({"kind": "note", "text": "x", "t": "now"}, None),
    ],
)
def test_nonsense_is_left_out_and_what_lacks_a_field_is_no_event(
    told: dict[str, Any], kept: dict[str, Any] | None
) -> None:
    assert read({"t": 1.0, **told}) == (None if kept is None else {"t": 1.0, **kept})


def test_a_line_nested_without_end_is_no_event() -> None:
    assert decode('{"t":1,"kind":"x","y":' + "[" * 100_000) is None
    deep = decode('{"t":1,"kind":"x","y":' + "[" * 500 + "]" * 500 + "}")
    assert deep is not None
    assert len(encode(deep)) < 100
