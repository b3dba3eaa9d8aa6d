"""The last lines of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.small_programs import write

WAITS = """
    import os, pathlib
    from oarlock.system.polling import wait_for
    events = pathlib.Path(os.environ["OARLOCK_HOME"], "runs", os.environ["OARLOCK_RUN"], "events.jsonl")
    wait_for(lambda: "evaluator-0 is not restarted" in events.read_text(), "end of the evaluator", 300)
"""


def test_a_failed_evaluator_is_named_when_the_run_succeeds(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", WAITS)
    write(tmp_path / "score.py", "import no_such_thing")
    (tmp_path / "job.yaml").write_text("program: train.py\nevaluate: {program: score.py}\n")
    done = oarlock("run", "--name", "unscored")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.partition("unscored succeeded")[2].splitlines()
    assert lines[1] == "evaluator-0 failed: oarlock logs --task evaluator-0 unscored", done.stdout
