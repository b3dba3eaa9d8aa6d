"""Models that a program exports while it trains: they are in the snapshots, and answer, before it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.local import local_engine
from oarlock.models.model_versions import versions
from oarlock.records import runs
from oarlock.system import processes
from tests.support.gangs import Gang, until_gone
from tests.support.stores import BUCKET, Store, complete, needs_store, serving
from tests.support.waiting import eventually

Command = Callable[..., subprocess.CompletedProcess[str]]
URL = f"s3://{BUCKET}/mine"
# After k steps its weight is k. As a model, it multiplies by its weight.
TRAIN = """
import json, pathlib, sys, time
import oarlock
steps, every, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
state = oarlock.State(weight=0)
pathlib.Path("predict.py").write_text('''
import json
def load(folder):
    return Model(json.loads((folder / "weight.json").read_text()))
class Model:
    def __init__(self, weight):
        self.weight = weight
    def predict(self, inputs):
        return {"y": inputs["x"] * self.weight}
''')
def publish():
    if sys.argv[4:] == ["fail"] or sys.argv[4:] == ["fail early"] and state.step < steps:
        raise ValueError("the disk of models is full")
    pathlib.Path("weight.json").write_text(json.dumps(state.weight))
    oarlock.export("predict.py", example={"x": [1.0]}, files=["weight.json"], keep=2)
for step in state.steps(steps, save=5, export=publish, export_every=every):
    state.weight += 1
    state.report(loss=1 / (1 + step))
    time.sleep(pause)
"""


@pytest.fixture
def train(home: Path, tmp_path: Path) -> Iterator[Callable[..., Gang]]:
    def start(steps: int, every: int, pause: float = 0.02, *more: str, **fields: Any) -> Gang:
        args = [str(steps), str(every), str(pause), *more]
        return Gang(tmp_path / "job", TRAIN, roles={"worker": 1}, args=args, **fields)

    yield start
    for run in runs.all_runs():
        local_engine.stop(run, now=True)
        eventually(lambda run=run: not run.is_held(), f"end of {run.name}", every=0.01)  # type: ignore[misc]


@pytest.fixture
def store(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with serving(tmp_path / "bucket", monkeypatch) as found:
        yield found


def numbers(store: Store, run: str) -> list[int]:
    """The complete versions in the store."""
    return sorted(int(name[6:]) for name in complete(store, run) if name.startswith("model/"))


def answer(oarlock: Command, model: str) -> float:
    """What it makes of 1."""
    done = oarlock("predict", "-m", model, "--json", "1.0")
    assert done.returncode == 0, done.stdout + done.stderr
    [value] = json.loads(done.stdout)["outputs"].values()
    return float(value)


def step_of(folder: Path) -> int:
    return int(json.loads((folder / "oarlock.json").read_text())["step"])


@needs_store
def test_they_can_be_tried_while_the_training_goes_on(
    train: Callable[..., Gang], store: Store, oarlock: Command
) -> None:
    gang = train(10**6, 10, storage={"snapshots": URL})
    gang.until(lambda gang: numbers(store, gang.run.name), "version in the store")
    from_bucket = answer(oarlock, f"{URL}/{gang.run.name}/model")
    assert from_bucket >= 10, "of a step at which it exports"
    assert from_bucket % 10 == 0
    from_run = answer(oarlock, gang.run.name)
    assert from_run >= from_bucket
    assert from_run % 10 == 0
    assert gang.run.is_held(), "it still trains"
    assert len(versions(gang.run.path / "model")) <= 3, "keep=2, and perhaps one that has just come"


@needs_store
def test_at_the_end_the_last_one_is_there_with_its_step(
    train: Callable[..., Gang], store: Store, oarlock: Command, tmp_path: Path
) -> None:
    gang = train(25, 10, storage={"snapshots": URL})
    assert gang.end().state == "succeeded", gang.told()
    here = {one.number: step_of(one.path) for one in versions(gang.run.path / "model")}
    assert here == {2: 20, 3: 25}
    assert 3 in numbers(store, gang.run.name)
    there = store.folder / BUCKET / "mine" / gang.run.name / "model" / "3"
    assert (step_of(there), json.loads((there / "weight.json").read_text())) == (25, 25)
    assert json.loads((there / "manifest.json").read_text())["manifest"]["step"] == 25
    done = oarlock("pull", "--snapshots", "--to", "here", gang.run.name)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "here" / "model" / "3" / "weight.json").read_text()) == 25
    listed = json.loads(oarlock("checkpoints", "--json", gang.run.name).stdout)["checkpoints"]
    assert ("model/3", "complete") in [(one["name"], one["state"]) for one in listed]


@needs_store
def test_a_machine_without_the_earlier_ones_continues_their_numbers(
    train: Callable[..., Gang], store: Store, home: Path, oarlock: Command
) -> None:
    gang = train(10**6, 10, storage={"snapshots": URL}, run="moved")
    gang.until(lambda gang: len(numbers(store, "moved")) >= 2, "two versions in the store")
    assert gang.state.agent
    everybody = [gang.state.agent, *processes.descendants(gang.state.agent)]
    os.kill(gang.state.agent, signal.SIGKILL)
    until_gone(everybody)
    store.settle()
    shutil.rmtree(home)
    before = {name: path.read_bytes() for name, path in store.objects().items()}
    newest = numbers(store, "moved")[-1]
    there = max(int(name.split("-")[1]) for name in complete(store, "moved") if name.startswith("step-"))
    again = train(there + 1, 10**6, storage={"snapshots": URL}, run="moved")
    assert again.end().state == "succeeded", again.told()
    assert before.items() <= {name: path.read_bytes() for name, path in store.objects().items()}.items()
    assert numbers(store, "moved")[-1] > newest
    assert answer(oarlock, f"{URL}/moved/model") == there + 1, "the newest is the last that was trained"


def test_a_folder_has_them_too(train: Callable[..., Gang], tmp_path: Path, oarlock: Command) -> None:
    gang = train(12, 5, storage={"snapshots": "backup"}, run="kept")
    assert gang.end().state == "succeeded", gang.told()
    assert answer(oarlock, str(tmp_path / "job" / "backup" / "kept" / "model")) == 12


def test_one_that_fails_is_said_and_the_training_goes_on(train: Callable[..., Gang]) -> None:
    gang = train(12, 5, 0.0, "fail early")
    assert gang.end().state == "succeeded", gang.told()
    told = [event["text"] for event in gang.of("note") if "export" in event["text"]]
    assert told == [
        f"worker-0: the export at step {step} failed, and the training continues: "
        "ValueError: the disk of models is full"
        for step in (5, 10)
    ]
    assert [step_of(one.path) for one in versions(gang.run.path / "model")] == [12]


def test_a_run_whose_last_one_fails_has_not_succeeded(train: Callable[..., Gang]) -> None:
    gang = train(12, 5, 0.0, "fail", limits={"restarts": 0})
    assert gang.end().state == "failed"
    assert any("the disk of models is full" in line for line in gang.lines)
