"""`oarlock ingest`, and the flags of `run` that skip or repeat it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import Command
from tests.support.small_programs import write

JOB = """
    name: prepared
    program: train.py
    ingest: {program: prepare.py, args: [once]}
"""
PREPARE = """
    import oarlock, sys
    task = oarlock.current()
    (task.data / "numbers").write_text("1 2 3")
    task.report(3, total=3)
    print("preparing", sys.argv[1])
"""
TRAIN = """
    import oarlock
    print("trained with", [path.name for path in oarlock.current().data.glob("n*")])
"""


def test_it_prepares_the_data_that_a_run_then_finds(oarlock: Command, tmp_path: Path) -> None:
    write(tmp_path / "job.yaml", JOB)
    write(tmp_path / "prepare.py", PREPARE)
    write(tmp_path / "train.py", TRAIN)

    skipped = oarlock("run", "--skip-ingest")
    assert "trained with []" in skipped.stdout, skipped.stderr

    alone = oarlock("ingest", "--name", "alone", "--json")
    assert alone.returncode == 0, alone.stderr
    state = json.loads(alone.stdout.splitlines()[-1])
    assert (state["kind"], state["state"]) == ("state", "succeeded")
    assert [task["name"] for task in state["tasks"] if task["state"] == "finished"] == ["ingest-0"]
    assert Path(state["folders"]["data"], "numbers").read_text() == "1 2 3"
    assert "preparing once" in oarlock("logs", "alone").stdout
    assert "ingest-0" in oarlock("status", "alone").stdout

    found = oarlock("run")
    assert "ingest: done by alone" in found.stdout
    assert "preparing" not in found.stdout
    assert "trained with ['numbers']" in found.stdout

    forced = oarlock("run", "--force-ingest")
    assert "ingest-0 | preparing once" in forced.stdout
    assert "trained with ['numbers']" in forced.stdout


def test_mistakes_are_told_before_anything_runs(oarlock: Command, tmp_path: Path) -> None:
    write(tmp_path / "train.py", TRAIN)
    none = oarlock("ingest", "train.py")
    assert (none.returncode, "has no ingest" in none.stderr) == (2, True), none.stderr
    write(tmp_path / "job.yaml", JOB)
    missing = oarlock("run")
    assert missing.returncode == 2
    assert "ingest.program: prepare.py: no such program" in missing.stderr
    both = oarlock("run", "--skip-ingest", "--force-ingest")
    assert both.returncode == 2
    assert "cannot be combined" in both.stderr
