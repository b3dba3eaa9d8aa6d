"""`oarlock attach` to a run that has ended; to a living one: test_run.py and screens/test_live.py."""

from __future__ import annotations

import json
from pathlib import Path

from oarlock.records import runs
from tests.support.commands import Command


def test_attach_to_a_run_that_ended_gives_its_end(oarlock: Command, records: Path) -> None:
    done = oarlock("attach", "abrupt-run")
    assert (done.returncode, done.stdout) == (7, "")
    assert "abrupt-run failed" in done.stderr
    *happened, state = map(json.loads, oarlock("attach", "--json", "abrupt-run").stdout.splitlines())
    assert happened == list(runs.find("abrupt-run").events())
    assert (state["kind"], state["run"], state["code"]) == ("state", "abrupt-run", 7)
