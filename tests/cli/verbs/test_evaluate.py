"""`oarlock evaluate`: the scores of the run's own evaluator, once more; and how scores are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import Command
from tests.support.run_shape import SCORE
from tests.support.small_programs import write

# float32 sums of random numbers: anything that is computed otherwise has other last digits.
TRAIN = """
    import os, sys, numpy as np, oarlock
    weights = np.zeros((64, 64), np.float32)
    state = oarlock.State(weights=weights)
    if oarlock.current().role == "evaluator":
        images = np.random.default_rng(1).standard_normal((256, 64)).astype(np.float32)
        for step in state.follow():
            print("looking at", step)
            if "BREAKS" in os.environ:
                sys.exit(7)
            if "SILENT" not in os.environ:
                state.report(accuracy=np.tanh(images @ weights).mean(), error=np.abs(weights).max())
    else:
        for step in state.steps(70, save=10, keep=100):
            state._session.finish()
            weights += np.random.standard_normal((64, 64)).astype(np.float32)
"""


@pytest.fixture
def scored(oarlock: Command, tmp_path: Path) -> RunFolder:
    write(tmp_path / "train.py", TRAIN)
    done = oarlock("run", "-n", "1", "--evaluator", "--name", "scored", "train.py")
    assert done.returncode == 0, done.stderr
    assert "oarlock | evaluator-0 scored step 70: " in done.stdout
    assert "\nscored: accuracy " in done.stdout
    return runs.find("scored")


def test_it_gives_every_digit_that_the_evaluator_gave_during_the_run(
    oarlock: Command, scored: RunFolder
) -> None:
    reports = [
        event for event in scored.events() if event.get("task") == "evaluator-0" and "accuracy" in event
    ]
    seen = {report["step"]: (report["accuracy"], report["error"]) for report in reports}
    assert list(seen) == [10, 20, 30, 40, 50, 60, 70]
    told = json.loads(oarlock("evaluate", "scored", "--all", "--json").stdout)
    assert {one["step"]: tuple(one["metrics"].values()) for one in told["scores"]} == seen
    (alone,) = json.loads(oarlock("evaluate", "scored@30", "--json").stdout)["scores"]
    assert alone == {
        "step": 30,
        "generation": 1,
        "metrics": {"accuracy": seen[30][0], "error": seen[30][1]},
    }
    table = oarlock("evaluate", "scored")
    assert table.stdout.splitlines()[0].split() == ["STEP", "ACCURACY", "ERROR"]
    assert table.stdout.splitlines()[1].split()[0] == "70"
    assert "looking at 70" in table.stderr

    scores = json.loads(oarlock("status", "scored", "--json").stdout)["scores"]
    assert all(set(score) == SCORE for score in scores.values())
    accuracies = {step: accuracy for step, (accuracy, _) in seen.items()}
    best = max(accuracies, key=lambda step: accuracies[step])
    assert (scores["accuracy"]["best"], scores["accuracy"]["best_step"]) == (accuracies[best], best)
    assert (scores["accuracy"]["latest"], scores["accuracy"]["latest_step"]) == (accuracies[70], 70)
    assert f"at step {best}" in oarlock("ps").stdout
    assert "scores\n  accuracy " in oarlock("status", "scored").stdout

    for words, code, message in (
        (["scored@35"], 1, "scored has no checkpoint of step 35; it has 10, 20, 30, 40, 50, 60, 70"),
        (["scored@last"], 2, "scored@last: expected the number of a step after the @"),
        (["scored@10", "--all"], 2, "give --all or a step, not both"),
        (["scored", "--on", "kubernetes"], 1, "scored did not run on a cluster: `oarlock evaluate scored`"),
        (["--on", "kubernetes-serving"], 2, "'kubernetes-serving' is not one of 'local', 'kubernetes'."),
    ):
        refused = oarlock("evaluate", *words)
        assert (refused.returncode, message in refused.stderr) == (code, True), refused.stderr


def test_a_program_that_scores_nothing_or_fails_is_said(
    oarlock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "train.py", TRAIN.replace("state.steps(70", "state.steps(10"))
    assert oarlock("run", "--name", "unscored", "train.py").returncode == 0  # had no evaluator
    late = json.loads(oarlock("evaluate", "--json").stdout)["scores"]
    assert runs.find("unscored").state().scores["accuracy"].latest == late[0]["metrics"]["accuracy"]
    monkeypatch.setenv("SILENT", "1")
    silent = oarlock("evaluate")
    assert silent.returncode == 1
    assert "the program reported no score of unscored: an evaluator loops over" in silent.stderr
    monkeypatch.setenv("BREAKS", "1")
    broken = oarlock("evaluate")
    assert broken.returncode == 7
    assert "the evaluator ended with exit code 7: nothing is stored" in broken.stderr
    assert len(runs.find("unscored").scores_file.read_text().splitlines()) == 1
