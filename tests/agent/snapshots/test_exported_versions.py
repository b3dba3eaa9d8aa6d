"""Models that a program exports while it trains: they are in the snapshots, and answer, before it ends."""

from __future__ import annotations

import json
import os
import re
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
from tests.support.other_stores import S3, Azure, Google, ObjectServer, complete, tags
from tests.support.soaking import cases
from tests.support.stores import EXPORTS, needs_store
from tests.support.waiting import eventually

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def train(home: Path, tmp_path: Path) -> Iterator[Callable[..., Gang]]:
    def start(steps: int, every: int, pause: float = 0.02, *more: str, **fields: Any) -> Gang:
        args = [str(steps), str(every), str(pause), *more]
        return Gang(tmp_path / "job", EXPORTS, roles={"worker": 1}, args=args, **fields)

    yield start
    for run in runs.all_runs():
        local_engine.stop(run, now=True)
        eventually(lambda run=run: not run.is_held(), f"end of {run.name}", every=0.01)  # type: ignore[misc]


KINDS = {
    "s3": pytest.param(S3, id="s3", marks=needs_store),
    "gs": pytest.param(Google, id="gs", marks=needs_store),
    "az": pytest.param(Azure, id="az"),
}


def on(kind: str) -> pytest.MarkDecorator:
    """Parametrize `url`: with one kind of server every time, and with all in the soak."""
    others = [found for name, found in KINDS.items() if name != kind]
    return pytest.mark.parametrize("url", cases([KINDS[kind]], soak=others), indirect=True)


@pytest.fixture
def url(
    request: pytest.FixtureRequest, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Of a folder in a bucket."""
    make: Callable[[Path], ObjectServer] = request.param
    server = make(tmp_path / "server")
    server.start()
    for name, value in server.env().items():
        monkeypatch.setenv(name, value)
    yield f"{server.url}/mine"
    server.kill()


def numbers(url: str, run: str) -> list[int]:
    """The complete versions in the store."""
    return sorted(int(name[6:]) for name in complete(url, run) if name.startswith("model/"))


def settled(url: str, run: str) -> dict[str, str]:
    """What is stored once requests of a dead client, which may be carried out late, have been."""
    looks = [tags(url, run)]

    def is_still() -> bool:
        looks.append(tags(url, run))
        return looks[-1] == looks[-2]

    eventually(is_still, "end of late requests", every=1.0)
    return looks[-1]


def answer(oarlock: Command, model: str) -> float:
    """What it makes of 1."""
    done = oarlock("predict", "-m", model, "--json", "1.0")
    assert done.returncode == 0, done.stdout + done.stderr
    [value] = json.loads(done.stdout)["outputs"].values()
    return float(value)


def step_of(folder: Path) -> int:
    return int(json.loads((folder / "oarlock.json").read_text())["step"])


@on("s3")
def test_they_can_be_tried_while_the_training_goes_on(
    train: Callable[..., Gang], url: str, oarlock: Command
) -> None:
    gang = train(10**6, 10, storage={"snapshots": url})
    gang.until(lambda gang: numbers(url, gang.run.name), "version in the store")
    from_bucket = answer(oarlock, f"{url}/{gang.run.name}/model")
    assert from_bucket >= 10, "of a step at which it exports"
    assert from_bucket % 10 == 0
    from_run = answer(oarlock, gang.run.name)
    assert from_run >= from_bucket
    assert from_run % 10 == 0
    assert gang.run.is_held(), "it still trains"
    assert len(versions(gang.run.path / "model")) <= 3, "keep=2, and perhaps one that has just come"


@on("gs")
def test_at_the_end_the_last_one_is_there_with_its_step(
    train: Callable[..., Gang], url: str, oarlock: Command, tmp_path: Path
) -> None:
    gang = train(25, 10, storage={"snapshots": url})
    assert gang.end().state == "succeeded", gang.told()
    here = {one.number: step_of(one.path) for one in versions(gang.run.path / "model")}
    assert here == {2: 20, 3: 25}
    assert 3 in numbers(url, gang.run.name)
    done = oarlock("pull", "--snapshots", "--to", "here", gang.run.name)
    assert done.returncode == 0, done.stderr
    brought = tmp_path / "here" / "model" / "3"
    assert (step_of(brought), json.loads((brought / "weight.json").read_text())) == (25, 25)
    listed = json.loads(oarlock("checkpoints", "--json", gang.run.name).stdout)["checkpoints"]
    assert ("model/3", "complete") in [(one["name"], one["state"]) for one in listed]


@on("az")
def test_a_machine_without_the_earlier_ones_continues_their_numbers(
    train: Callable[..., Gang], url: str, home: Path, oarlock: Command
) -> None:
    gang = train(10**6, 10, storage={"snapshots": url}, run="moved")
    gang.until(lambda gang: len(numbers(url, "moved")) >= 2, "two versions in the store")
    assert gang.state.agent
    everybody = [gang.state.agent, *processes.descendants(gang.state.agent)]
    os.kill(gang.state.agent, signal.SIGKILL)
    until_gone(everybody)
    shutil.rmtree(home)
    before = settled(url, "moved")
    newest = max(int(path.split("/")[1]) for path in before if path.startswith("model/"))
    there = max(int(name.split("-")[1]) for name in complete(url, "moved") if name.startswith("step-"))
    again = train(there + 1, 10**6, storage={"snapshots": url}, run="moved")
    assert again.end().state == "succeeded", again.told()
    assert before.items() <= tags(url, "moved").items(), "nothing is written over"
    assert numbers(url, "moved")[-1] > newest
    assert answer(oarlock, f"{url}/moved/model") == there + 1, "the newest is the last that was trained"


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


@needs_store
@pytest.mark.parametrize("url", [KINDS["s3"]], indirect=True)
def test_the_commands_of_its_page_work(url: str, oarlock: Command, tmp_path: Path) -> None:
    """Those of the sections about models and weights; servers run until Ctrl-C."""
    page = (Path(__file__).parents[3] / "docs" / "snapshots.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "train.py").write_text(program)
    done = oarlock("run", "--name", "mnist-one", "--set", f"storage.snapshots={url}", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    run = runs.find("mnist-one")
    assert [step_of(one.path) for one in versions(run.path / "model")] == [50, 100]
    shutil.copytree(run.path / "checkpoints", tmp_path / "old" / "checkpoints")
    lines = re.findall(r"^oarlock ((?:run|predict) .*?) *(?:#.*)?$", page, re.MULTILINE)
    assert len(lines) == 5, lines
    for line in lines:
        done = oarlock(*line.replace("s3://my-bucket/runs", url).split())
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        assert "starts from the weights of mnist-one, step " in done.stdout or "predict" in line
