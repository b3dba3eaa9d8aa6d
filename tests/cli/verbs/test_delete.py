"""`oarlock delete`: what it frees, and what it refuses to delete."""

from __future__ import annotations

import json
from pathlib import Path

from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import Command
from tests.support.small_programs import write


def test_delete_frees_the_folder(oarlock: Command, tmp_path: Path) -> None:
    write(
        tmp_path / "train.py", "import oarlock; (oarlock.current().model / 'w').write_bytes(b'x' * 300_000)"
    )
    oarlock("run", "--name", "big", "train.py")
    prefix = oarlock("delete", "bi")
    assert (prefix.returncode, prefix.stderr) == (
        2,
        "oarlock: there is no run called bi; did you mean big?\n",
    )
    done = oarlock("delete", "big")
    assert done.returncode == 0
    assert done.stdout.startswith("deleted big: 3")
    assert done.stdout.endswith(" kB freed\n")
    assert runs.all_runs() == []
    assert oarlock("delete", "big").returncode == 2


def test_delete_keeps_what_runs_unless_forced(oarlock: Command, living: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "short.py").touch()
    oarlock("run", "--name", "short", "short.py")
    refused = oarlock("delete", "short", "living")
    assert refused.returncode == 1
    assert "living is running" in refused.stderr
    assert len(runs.all_runs()) == 2
    [freed] = json.loads(oarlock("delete", "--finished", "--json").stdout)
    assert freed["run"] == "short"
    assert freed["freed"] > 0
    assert [run.name for run in runs.all_runs()] == ["living"]
    assert oarlock("delete", "--force", "living").returncode == 0
    assert runs.all_runs() == []


def test_delete_wants_to_know_which(oarlock: Command) -> None:
    assert oarlock("delete").returncode == 2
    assert oarlock("delete", "--finished").stdout == "there was nothing to delete\n"
