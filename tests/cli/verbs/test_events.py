"""`oarlock events`: a line for each event, or the record itself as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import Command


def test_events_are_told_a_line_each(oarlock: Command, records: Path) -> None:
    lines = [line.partition("  ")[2] for line in oarlock("events", "again-run").stdout.splitlines()]
    assert lines[0] == "run of again: 2 tasks"
    assert "generation 1: 2 tasks" in lines
    assert "worker-1 failed: RuntimeError: only once; restarting (2 left)" in lines
    assert lines[-1] == "succeeded, exit code 0"


def test_events_as_json_are_the_record(oarlock: Command, records: Path) -> None:
    record = [json.loads(line) for line in (records / "runs/again-run/events.jsonl").read_text().splitlines()]
    for words in (["--json"], ["--json", "-f"]):
        done = oarlock("events", "again-run", *words)
        assert [json.loads(line) for line in done.stdout.splitlines()] == record
    some = oarlock("events", "again-run", "--json", "--kind", "restart", "--kind", "end").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in some] == ["restart", "end"]
