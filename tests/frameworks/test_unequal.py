"""Machines with different numbers of processes train together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "sgd_torch.py"


def trained(gang: Any) -> tuple[list[str], list[float]]:
    """(RANK, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK of each task, the weights)."""
    assert gang.end().state == "succeeded", gang.told()
    said = [line.partition("| ")[2] for line in gang.lines]
    [weights] = [line.split()[1:] for line in said if line.startswith("weights ")]
    return sorted(line for line in said if line.startswith("place ")), [float(weight) for weight in weights]


def test_one_and_three_processes_make_the_weights_of_one(start: Any) -> None:
    program = PROGRAM.read_text()
    groups = {"worker": [{"processes": 1}, {"processes": 3}]}
    places, weights = trained(start(program, machines=2, roles=groups))
    assert places == ["place 0 0 1 0", "place 1 0 3 1", "place 2 1 3 1", "place 3 2 3 1"]
    places, expected = trained(start(program, roles={"worker": 1}))
    assert places == ["place 0 0 1 0"]
    assert weights == pytest.approx(expected, abs=2e-6)
    assert weights == pytest.approx([1, 2, 3, 4, 5], abs=0.2)
