"""The hooks in the real libraries: what the agent is told by a program that reports nothing itself."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.task_lines import read_to_end

PROGRAM = Path(__file__).parents[1] / "programs" / "observed_libraries.py"
Report = dict[str, Any]


@pytest.fixture(scope="module")
def told() -> dict[str, list[Report]]:
    """All reports, by the part of the program that they are from."""
    for needed in ("accelerate", "keras", "lightning", "torch", "tqdm", "transformers"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    parts: dict[str, list[Report]] = {}
    for event in run(PROGRAM):
        if event["kind"] == "note":
            parts[event["text"]] = []
        else:
            parts[[*parts][-1]].append(event)
    return parts


def run(program: Path) -> list[Report]:
    ours, theirs = socket.socketpair()
    env = {**os.environ, "OARLOCK_RUN": "r", "KERAS_BACKEND": "torch", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(program)],
        env={**env, "OARLOCK_FD": str(theirs.fileno())},
        pass_fds=[theirs.fileno()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    theirs.close()
    lines = read_to_end(ours)
    printed, _ = process.communicate(timeout=500)
    assert process.returncode == 0, printed
    return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "source", "step", "total", "epoch"),
    [
        ("with_tqdm", "tqdm", 6, 6, None),
        ("with_accelerate", "accelerate", 4, None, None),
        ("with_transformers", "transformers", 10, 10, 2),
        ("with_lightning", "lightning", 12, 12, 3),
        ("with_keras", "keras", 14, 14, 2),
    ],
)
def test_the_last_step_of_every_library_is_told(
    told: dict[str, list[Report]], part: str, source: str, step: int, total: int | None, epoch: int | None
) -> None:
    last = told[part][-1]
    assert {report["observed"] for report in told[part]} == {source}
    assert (last["step"], last.get("total"), last.get("epoch")) == (step, total, epoch)
    assert isinstance(last["loss"], float)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["with_transformers", "with_lightning", "with_keras", "with_failure"])
def test_a_loop_says_that_it_has_ended_however_it_does(told: dict[str, list[Report]], part: str) -> None:
    assert [report["more"] for report in told[part]][-1] is False


@pytest.mark.slow
def test_the_best_source_is_heard_and_the_program_itself_before_all(told: dict[str, list[Report]]) -> None:
    assert told["with_weaker"] == []
    assert [report["step"] for report in told["with_own"]] == [3]
    assert "observed" not in told["with_own"][0]
