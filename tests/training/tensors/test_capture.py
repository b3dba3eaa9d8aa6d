"""What programs keep comes back from a real checkpoint folder bit for bit, or it is said why it cannot.

Starting a framework costs seconds, so each is started once and goes through all its cases
(programs/round_trips); the tests then say how each went.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs" / "round_trips"
CASES = [
    pytest.param(program, case, id=f"{program}-{case}")
    for program in ("plain", "torch_things", "fsdp", "jax_things", "keras_things")
    for case in re.findall(r"^def case_(\w+)", (PROGRAMS / f"{program}.py").read_text(), re.MULTILINE)
]
Outcomes = dict[str, "str | None"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcomes]:
    known: dict[str, Outcomes] = {}
    alone = {name: value for name, value in os.environ.items() if not name.startswith("OARLOCK_")}

    def of(program: str) -> Outcomes:
        if program not in known:
            words = [sys.executable, str(PROGRAMS / f"{program}.py"), str(tmp_path_factory.mktemp(program))]
            known[program] = {}  # should it fail, it does so once
            done = subprocess.run(words, env=alone, capture_output=True, text=True, timeout=500)
            assert done.returncode == 0, done.stderr
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
            known[program] = {line["case"].removeprefix("case_"): line["told"] for line in lines}
        return known[program]

    return of


@pytest.mark.parametrize(("program", "case"), CASES)
def test_a_round_trip(outcomes: Callable[[str], Outcomes], program: str, case: str) -> None:
    told = outcomes(program)[case]
    assert told is None, told
