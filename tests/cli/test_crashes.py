"""The last resort: an error that nobody expected is one line and a file, not a traceback."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock.cli import crashes

BROKEN = """
import oarlock.records.runs
def all_runs():
    raise KeyError("unheard of \\x1b[2J")
oarlock.records.runs.all_runs = all_runs
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real console script, in which listing the runs is broken."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))


def test_an_unexpected_error_is_one_line_and_a_file(oarlock: Any, broken: None, home: Path) -> None:
    done = oarlock("status", "some-run", "--json")
    assert (done.returncode, done.stdout) == (crashes.EXIT_CODE, "")
    (line,) = done.stderr.splitlines()
    assert "Traceback" not in line
    assert "\x1b" not in line
    (kept,) = (home / "crashes").iterdir()
    assert line.startswith("oarlock: a bug in Oarlock: KeyError")
    assert line.endswith(str(kept))
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    text = kept.read_text()
    assert "Traceback" in text
    assert "KeyError" in text
    assert f"Python {sys.version.split()[0]}" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_leaves_the_file_elsewhere(
    oarlock: Any, broken: None, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(mode=0o500)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = oarlock("status")
    assert done.returncode == crashes.EXIT_CODE
    assert list(tmp_path.glob("oarlock-crash-*"))


def test_values_of_arguments_are_not_kept() -> None:
    words = [
        "run",
        "--env",
        "KEY=secret",
        "--set=env.KEY=secret",
        "-n",
        "2",
        "train.py",
        "--token=secret",
        "secret",
    ]
    kept = crashes.without_values(words)
    assert "secret" not in " ".join(kept)
    assert kept == ["run", "--env", "KEY=…", "--set", "-n", "…", "…", "--token", "…"]


def test_only_the_newest_are_kept(home: Path) -> None:
    folder = home / "crashes"
    folder.mkdir(parents=True)
    for number in range(40):
        (folder / f"oarlock-crash-2020-{number:02d}.log").touch()
    assert "please report" in crashes.keep(ValueError("x"))
    assert len(list(folder.iterdir())) == 20
