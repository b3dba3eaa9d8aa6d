"""`oarlock.State` without a launcher: a loop of one's own that can be left and entered again anywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock.checkpoints.store import Store
from oarlock.training.state import State

# Every step draws random numbers; `settle` makes sure that what is to be saved is not skipped over.
PROGRAM = """
import json, os, random, signal, sys
import numpy as np
import oarlock

weights = np.zeros(1000)
state = oarlock.State(weights=weights, seen=[], best=None)
batches = oarlock.data.Batches(40, 10)
first = state.step

def settle():
    while state._session.is_busy:
        state._session.poll(10)

for step in state.steps(10, OPTIONS):
    settle()
    weights += np.random.rand() + random.random() + step
    state.seen.append(step)
    state.report(loss=abs(step - 6))
    BODY
print(json.dumps({"first": first, "step": state.step, "seen": state.seen, "sum": weights.sum().hex()}))
"""


class Runs:
    """The program in a folder of its own, as often as one likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / "checkpoints")

    def start(self, options: str = "save=2", body: str = "", program: str = PROGRAM) -> subprocess.Popen[str]:
        text = program.replace("OPTIONS", options).replace("BODY", body.replace("\n", "\n    ") or "pass")
        (self.folder / "program.py").write_text(text)
        own = ("OARLOCK_", "CHECKPOINT_DIR")
        return subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith(own)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str, code: int = 0, **more: str) -> tuple[dict[str, Any], list[str]]:
        """What it printed at its end, and what was said on the way."""
        with self.start(*words, **more) as program:
            out, said = program.communicate(timeout=300)
        assert program.returncode == code, said
        assert not list(self.store.folder.glob(".saving-*")), "nothing half is left"
        return json.loads(out) if out else {}, said.splitlines()

    def saved(self) -> list[int]:
        return [checkpoint.step for checkpoint in self.store.checkpoints()]


@pytest.fixture
def run(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    told, said = Runs(tmp_path_factory.mktemp("undisturbed"))()
    assert said == []
    assert (told["first"], told["step"], told["seen"]) == (0, 10, list(range(10)))
    return told


def going_on(step: int) -> str:
    return f"oarlock: resuming from step {step} (step-{step:010d}-g1)"


# Leaving and going on


def test_a_finished_run_has_no_steps_left(run: Runs, undisturbed: dict[str, Any]) -> None:
    run()
    before = run.saved()
    told, said = run()
    assert told == {**undisturbed, "first": 10}
    anew = f"oarlock: all 10 steps are done; to train again, empty {run.store.folder} or use another folder"
    assert said == [going_on(10), anew]
    assert run.saved() == before


def test_more_steps_may_be_asked_for_later(run: Runs) -> None:
    run()
    told, said = run(program=PROGRAM.replace("steps(10", "steps(12"))
    assert (told["first"], told["seen"]) == (10, list(range(12)))
    assert said == ["oarlock: program.py changed since step 10 was saved", going_on(10)]


def test_a_killed_run_goes_on_to_the_same_numbers(run: Runs, undisturbed: dict[str, Any]) -> None:
    run(body="if step == 7: os.kill(os.getpid(), signal.SIGKILL)", code=-signal.SIGKILL)
    assert run.saved() == [2, 4, 6]
    told, _ = run()
    assert told == {**undisturbed, "first": 6}


def test_sigterm_saves_the_step_and_leaves(run: Runs, undisturbed: dict[str, Any]) -> None:
    _, said = run("save=None", "if step == 4: os.kill(os.getpid(), signal.SIGTERM)", code=143)
    assert said == ["oarlock: asked to stop: stopped before step 5, which is saved"]
    assert run.saved() == [5]
    told, _ = run()
    assert told == {**undisturbed, "first": 5}


def test_sigterm_that_cannot_save_does_not_claim_it_did(run: Runs) -> None:
    body = """
if step == 4:
    import shutil
    shutil.rmtree("checkpoints")
    open("checkpoints", "w").close()
    os.kill(os.getpid(), signal.SIGTERM)
"""
    with run.start("save=None", body.strip()) as program:
        _, said = program.communicate(timeout=300)
    assert program.returncode == 143
    first, last = said.splitlines()
    assert first.startswith("oarlock: a checkpoint could not be saved, retrying: ")
    assert last == "oarlock: asked to stop: stopped before step 5, which could not be saved"


def test_leaving_the_loop_early_saves_nothing_more(run: Runs, undisturbed: dict[str, Any]) -> None:
    told, _ = run(body="if step == 7: break")
    assert (told["step"], told["seen"]) == (7, list(range(8)))
    assert run.saved() == [2, 4, 6]
    told, _ = run()
    assert told == {**undisturbed, "first": 6}


def test_an_exception_costs_only_what_was_not_saved(run: Runs, undisturbed: dict[str, Any]) -> None:
    """The save that is under way when it happens still arrives."""
    body = "if step == 6: raise RuntimeError('no such luck')"
    _, said = run(body=body, program=PROGRAM.replace("    settle()\n", "    step == 6 or settle()\n"), code=1)
    assert said[-1] == "RuntimeError: no such luck"
    assert run.saved() == [2, 4, 6]
    told, _ = run()
    assert told == {**undisturbed, "first": 6}


def test_a_torn_checkpoint_is_said_and_the_one_before_taken(run: Runs, undisturbed: dict[str, Any]) -> None:
    run(body="if step == 7: break")
    path = run.store.folder / "step-0000000006-g1" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    told, said = run()
    assert told == {**undisturbed, "first": 4}
    assert said[0].startswith(
        "oarlock: skipped step-0000000006-g1, which is not whole: state.safetensors has"
    )
    assert going_on(4) in said


def test_without_reseeding_numbers_are_the_programs_own(run: Runs) -> None:
    body = "if step == 0: print(json.dumps(random.random()), file=sys.stderr)"
    program = PROGRAM.replace("for step in", "random.seed(1)\nfor step in")
    _, said = run("reseed=False", body, program=program)
    assert said == ["0.8474337369372327"]


# When, and what stays


@pytest.mark.parametrize(
    ("options", "saved"),
    [
        ("save=3, keep=9", [3, 6, 9, 10]),
        ("save=1, keep=4", [7, 8, 9, 10]),
        ('save="epoch", batches=batches, keep=9', [4, 8, 10]),
        ("save=None", [10]),
        ('save="1h"', [10]),
        ('save="1ms", keep=99', [2, 4, 6, 8, 10]),  # asked for before one step, agreed on for the next
        ("save=1, keep=1, keep_every=4", [4, 8, 10]),
        ('save=1, keep=1, best="loss"', [7, 10]),
        ('save=1, keep=1, best="max:loss"', [1, 10]),
    ],
)
def test_when_it_saves_and_what_stays(run: Runs, options: str, saved: list[int]) -> None:
    run(options, "import time; time.sleep(0.002)")
    assert run.saved() == saved


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("save=0", "ValueError: save=0: expected a number of steps"),
        ('save="epoch"', 'ValueError: save="epoch" needs the length of an epoch: pass batches=, too'),
        ("keep=0", "ValueError: keep=0: at least one checkpoint must be kept"),
    ],
)
def test_a_wrong_wish_is_refused_before_the_first_step(run: Runs, options: str, said: str) -> None:
    program = PROGRAM.replace("    settle()\n", "    print('a step')\n")
    told, lines = run(options, program=program, code=1)
    assert told == {}
    assert lines[-1].startswith(said)


def test_the_manifest_says_what_was_reported_and_where_it_was(run: Runs) -> None:
    run('save="epoch", batches=batches, keep=9', "state.report(accuracy=np.float32(0.5))")
    manifests = [checkpoint.manifest for checkpoint in run.store.checkpoints()]
    assert [manifest["metrics"] for manifest in manifests] == [
        {"loss": 3, "accuracy": 0.5},
        {"loss": 1, "accuracy": 0.5},
        {"loss": 3, "accuracy": 0.5},
    ]
    assert [manifest["epoch"] for manifest in manifests] == [1, 2, 2]
    assert manifests[0]["batches"] == {"count": 40, "global_batch": 10, "seed": 0, "shuffle": True}
    assert (manifests[0]["run"], manifests[0]["world"], list(manifests[0]["code"])) == (
        "local",
        1,
        ["program.py"],
    )


# What has changed


def test_changed_code_and_batches_are_said(run: Runs) -> None:
    run("save=2, batches=batches", "if step == 5: break")
    changed = PROGRAM.replace("Batches(40, 10)", "Batches(40, 20)")
    told, said = run("save=2, batches=batches", program=changed)
    assert told["first"] == 4
    assert said == [
        "oarlock: program.py changed since step 4 was saved",
        going_on(4),
        "oarlock: global batch was 10 and is 20 now: from step 4 on, steps mean other examples",
    ]


def test_a_program_that_keeps_other_things_is_told_what_to_do(run: Runs) -> None:
    run()
    _, said = run(program=PROGRAM.replace("best=None", "best=None, other=1"), code=1)
    what, why, advice = said[-3:]
    assert what.startswith("ValueError: step-0000000010-g1 in ")
    assert what.endswith(" does not fit this program:")
    assert why == "  it has no other."
    assert advice.startswith("  Use another folder (storage.checkpoints)")


# By name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    return tmp_path / "checkpoints"


@pytest.mark.parametrize("name", ["step", "steps", "report", "_things", "_mine", "__init__"])
def test_names_that_mean_something_else_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"^State cannot save {name} under that name"):
        State(**{name: 1})
    assert not folder.exists()


def test_what_is_replaced_is_set_as_an_attribute(folder: Path) -> None:
    state = State(params=[1], count=0)
    state.params = [2]
    state.count += 1
    assert (state.params, state.count) == ([2], 1)
    with pytest.raises(AttributeError, match=r"pass extra when you create the State: State\(extra=...\)"):
        state.extra = 1
    with pytest.raises(AttributeError, match="this State has no extra"):
        _ = state.extra
    with pytest.raises(AttributeError):
        state.step = 5  # type: ignore[misc]


def test_two_loops_one_after_the_other(folder: Path) -> None:
    state = State(seen=[])
    for total in (3, 5):
        for step in state.steps(total, save=1, keep=9):
            state.seen.append(step)
    assert state.seen == [0, 1, 2, 3, 4]
    assert State(seen=[]).seen == [0, 1, 2, 3, 4]


def test_checkpoints_are_kept_in_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKPOINT_DIR", "s3://bucket/place")
    with pytest.raises(ValueError, match=r"not to s3://bucket/place: set storage\.snapshots to that URL"):
        State(a=1)
