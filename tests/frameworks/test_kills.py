"""Tasks killed in the middle of a step: the gang restarts, every time, on the first try."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.killing import kill_at_random, stepping_gang
from tests.support.soaking import cases, moments


# test_exact_resume.py kills workers of TensorFlow every time.
@pytest.mark.parametrize("framework", cases(["torch", "jax"], soak=["tensorflow"]))
def test_every_kill_is_recovered_on_the_first_restart(home: Path, tmp_path: Path, framework: str) -> None:
    gang = stepping_gang(tmp_path / "job", framework)
    gang.until_step(1)
    assert gang.of("ready")[0]["warm"], "the framework was imported before the fork"
    kills = moments(2)
    assert len(kill_at_random(gang, kills, random.Random(framework))) == kills
