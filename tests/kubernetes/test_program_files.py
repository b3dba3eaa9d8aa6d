"""What a program writes beside itself outlives its pod, reaches the other pods, and can be pulled."""

from __future__ import annotations

import json
from pathlib import Path

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, selecting
from oarlock.records import runs
from tests.support.commands import Command
from tests.support.kubernetes.driving import MEET, until_stepping, written
from tests.support.kubernetes.small import start_detached

# Saves as most programs do, and resumes by itself.
RESUMES = """
import pathlib, time
import oarlock
me = oarlock.current()
saved = pathlib.Path("out/state.txt")
if not saved.exists():
    if me.generation > 1:
        raise SystemExit("nothing to resume from")
    if me.rank == 0:
        saved.parent.mkdir()
        saved.write_text("half way")
    me.report(step=1, loss=1.0)
    while True:
        time.sleep(0.05)
print("resumed", saved.read_text())
me.report(step=2, loss=1.0)
"""


def test_files_beside_the_program_are_kept_and_handed_on(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    ended.append("files-kept")
    start_detached(oarlock, "files-kept", written(tmp_path / "program", RESUMES + MEET))
    until_stepping(runs.find("files-kept"), 1)
    [leader] = api.all("Pod", f"{selecting('files-kept')},{LEAD}=true")
    api.delete("Pod", leader["metadata"]["name"])
    done = oarlock("attach", "files-kept", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for task in ("worker-0", "worker-1"):
        assert "resumed half way" in oarlock("logs", "--task", task, "files-kept").stdout
    kept = "kept: 1 file, 8 bytes that the program wrote beside itself, out/state.txt among them"
    assert f"{kept}; oarlock pull files-kept --what files" in done.stdout
    done = oarlock("pull", "files-kept", "--json", "--to", str(tmp_path / "here"), timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["folders"]["files"] == str(tmp_path / "here" / "files")
    found = [path for path in (tmp_path / "here" / "files").rglob("*") if path.is_file()]
    assert [path.name for path in found] == ["state.txt"]
    assert found[0].read_text() == "half way"
