"""Programs of accelerate's own, out of its package, unchanged: each compares what its two ranks computed.
soak/test_published_programs.py has more, beside torchrun and with kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.published_programs import INSTALLED, Program
from tests.support.published_runs import ours, watch
from tests.support.soaking import cases


@pytest.mark.parametrize(
    "program", cases(INSTALLED[:1], soak=INSTALLED[1:]), ids=lambda program: program.name
)
def test_a_published_program_runs_unchanged(home: Path, tmp_path: Path, program: Program) -> None:
    seen = watch(program, ours(program), tmp_path, program.environment)
    assert seen.code == 0, seen.told()
    assert seen.steps, seen.told()
    assert seen.generation == 1, seen.told()
