"""The record's disk is full: training goes on, and it is said once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gangs import Gang, until_gone

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
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True, timeout=30)
    monkeypatch.setenv("OARLOCK_HOME", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


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
