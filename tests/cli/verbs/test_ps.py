"""`oarlock ps`: which runs it lists, in which order, and its JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

from oarlock.records import runs
from tests.support.commands import Command


def test_ps_lists_runs_newest_first(oarlock: Command, records: Path) -> None:
    done = oarlock("ps")
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header[:5] == ["RUN", "STATE", "GENERATION", "RESTARTS", "TASKS"]
    assert [row[0] for row in rows] == [run.name for run in runs.all_runs()]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["bad-run"][:4] == ["failed", "2", "1", "2"]
    assert by_name["good-run"][:6] == ["succeeded", "1", "0", "2", "20/20", "0.05"]
    assert header[-3:] == ["GOODPUT", "AGE", "DURATION"]
    assert all(re.fullmatch(r"\d+%", row[-3]) for row in rows)


def test_ps_shows_the_latest_twenty_unless_asked_for_all(oarlock: Command, home: Path) -> None:
    for number in range(23):
        folder = home / "runs" / f"run-{number}"
        folder.mkdir(parents=True)
        (folder / "job.yaml").touch()
        (folder / "events.jsonl").touch()
    done = oarlock("ps")
    assert len(done.stdout.splitlines()) == 21
    assert "3 older runs" in done.stderr
    assert len(oarlock("ps", "--all").stdout.splitlines()) == 24
    assert len(json.loads(oarlock("ps", "--json").stdout)) == 20


def test_ps_without_runs(oarlock: Command) -> None:
    assert (oarlock("ps").stdout, oarlock("ps", "--json").stdout) == ("no runs yet\n", "[]\n")
