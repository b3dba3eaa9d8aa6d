"""Events: what is written is read back, and what makes no sense is left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oarlock.run.events import decode, encode, read


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


STARTED = {"kind": "task", "task": "worker-0", "state": "started", "pid": 11}
KNOWN: list[dict[str, Any]] = [
    {"kind": "run", "job": "mnist", "engine": "local", "tasks": ["worker-0", "worker-1"], "version": 1},
    {"kind": "agent", "pid": 7, "host": "here"},
    {"kind": "ready", "seconds": 1.5, "warm": True, "modules": ["torch"], "keeper": 3, "keep": 600.0},
    {"kind": "image", "image": "python:3", "digest": "sha256:0"},
    {"kind": "generation", "generation": 1, "tasks": ["worker-0", "worker-1"]},
    STARTED,
    {"kind": "report", "task": "worker-0", "step": 3, "total": 9, "busy": 0.5, "loss": 0.5},
    {"kind": "error", "task": "worker-0", "type": "ValueError", "message": "no", "where": "train.py:3"},
    {"kind": "checkpoint", "seconds": 0.1, "task": "worker-0", "step": 3},
    {"kind": "snapshot", "name": "step-3", "bytes": 12},
    {"kind": "task", "task": "worker-0", "state": "ended", "code": 137, "ours": True},
    {"kind": "restart", "task": "worker-0", "reason": "no", "left": 2, "forgiven": False, "alone": True},
    {"kind": "scale", "workers": 2},
    {"kind": "note", "text": "something"},
    {"kind": "problem", "text": "no room", "fix": "make some"},
    {"kind": "stop", "reason": "asked"},
    {"kind": "end", "state": "failed", "code": 1, "task": "worker-0", "reason": "no"},
]


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
