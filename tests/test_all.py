"""`make test` runs every part, whatever the one before came to, and ends with what they came to together."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.all import LONGEST_ON_A_CLUSTER, PARTS, Part, main

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
TESTS = """
import pytest

def test_one(): pass
def test_two(): pass
def test_three(): assert False
def test_four(): pytest.skip("not here")
@pytest.fixture
def broken(): raise OSError
def test_five(broken): pass
"""


def test_every_part_runs_and_the_counts_are_those_of_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text("import nowhere_at_all")
    parts = [
        Part("fails", ["false"]),
        Part("some", [*PYTEST, tmp_path / "test_some.py"]),
        Part("broken", [*PYTEST, tmp_path / "test_broken.py"]),
        Part("beside", ["sh", "-c", "echo from beside; exit 3"], is_beside=True),
        Part("last", ["echo", "at last"], is_heavy=True),
    ]
    assert main(parts) == 1
    printed = capfd.readouterr().out
    assert printed.index("from beside") < printed.index("at last")
    counts = {words[0]: words[1:4] for line in printed.splitlines() if len(words := line.split()) == 5}
    assert counts["fails"] == ["0", "1", "0"]
    assert counts["some"] == ["2", "2", "1"]
    assert counts["broken"] == ["0", "1", "0"]
    assert counts["beside"] == ["0", "1", "0"]
    assert counts["last"] == ["1", "0", "0"]
    assert printed.splitlines()[-1] == "3 passed, 5 failed, 1 skipped"


def test_every_folder_and_file_of_tests_is_in_some_part() -> None:
    told = {str(word) for part in PARTS for word in part.words}
    folder = Path(__file__).parent
    for path in folder.rglob("test_*.py"):
        names = [f"tests/{path.relative_to(folder)}", f"tests/{path.relative_to(folder).parts[0]}"]
        assert told.intersection(names), path
    assert {f"tests/kubernetes/test_{name}.py" for name in LONGEST_ON_A_CLUSTER} < told


def test_parts_beside_others_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for the other to begin."""
    meet = "touch {mine}; for _ in $(seq 3000); do test -e {other} && exit 0; sleep 0.1; done; exit 1"
    here, there = tmp_path / "here", tmp_path / "there"
    parts = [
        Part("one", ["sh", "-c", meet.format(mine=here, other=there)]),
        Part("beside", ["sh", "-c", meet.format(mine=there, other=here)], is_beside=True),
        Part("last", ["true"]),
    ]
    assert main(parts) == 0


def test_all_is_well_where_every_part_is() -> None:
    assert main([Part("well", ["true"])]) == 0
