"""The record's disk is full: training goes on, and it is said once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.records import runs
from tests.support.gangs import DEADLINE, Gang, until_gone
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")

PROGRAM = """
import os, oarlock
me = oarlock.current()
for step in range(1, 201):
    print("x" * 20_000)
    me.report(step, total=200)
open(os.environ["DATA_DIR"] + f"/{me.rank}.done", "w").write("trained")
"""


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True, timeout=300)
    monkeypatch.setenv("OARLOCK_HOME", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=300)


def test_training_goes_on_when_the_records_disk_is_full(small_disk: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    gang = Gang(tmp_path / "job", PROGRAM, storage={"data": str(data)})
    pid = gang.until(lambda gang: gang.state.agent, "agent").state.agent
    gang.end()
    final = gang.run.state()
    assert (final.state, final.tasks["worker-0"].step) == ("succeeded", 200), "the verdict had its place"
    assert any("No space left on device" in note for note in final.notes)
    assert {path.name for path in data.iterdir()} == {"0.done", "1.done"}
    assert pid is not None
    until_gone([pid])


def test_a_run_for_which_there_is_no_room_is_refused_at_its_start(
    oarlock: Any, small_disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('trained')\n")
    _leave(small_disk, 40 * 1024)
    done = oarlock("run", "-d", "--cold", "--name", "none", "train.py")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"oarlock: no room for a new run in {small_disk}/runs: No space left on device; free some"
    )
    assert list((small_disk / "runs").iterdir()) == []


@pytest.mark.parametrize("kilobytes", [76, 80, 84])
def test_where_the_room_hardly_suffices_nothing_is_lost(
    oarlock: Any, small_disk: Path, tmp_path: Path, kilobytes: int
) -> None:
    """It is refused; or its agent finds the disk full, and says so; or it trains without a log."""
    (tmp_path / "train.py").write_text("print('x' * 1_000_000)\n")
    _leave(small_disk, kilobytes * 1024)
    done = oarlock("run", "-d", "--cold", "--name", "tight", "train.py")
    if done.returncode:
        assert "no room for a new run" in done.stderr
        assert list((small_disk / "runs").iterdir()) == []
        return
    run = runs.find("tight")
    eventually(lambda: not run.is_held(), "end of the run", DEADLINE)
    state = run.state()
    assert state.is_final, state
    assert state.state == "succeeded" or "No space left" in (state.reason or "")


def _leave(folder: Path, left: int) -> None:
    """Fill the disk up to so many bytes."""
    (folder / "runs").mkdir()
    status = os.statvfs(folder)
    (folder / "filler").write_bytes(b"x" * (status.f_bavail * status.f_frsize - left))
