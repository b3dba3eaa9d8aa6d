"""`oarlock checkpoints`: what there is to go on from, whether it is whole, and what may be deleted; and
`oarlock pull --snapshots`, which brings it from a bucket."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.checkpoints import store as folders
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT
from tests.support.small_programs import write
from tests.support.stores import BUCKET, Store, needs_store, serving
from tests.support.waiting import eventually

TRAIN = """
    import os, time, oarlock
    state = oarlock.State(x=0)
    for step in state.steps(30, save=5, keep=10):
        state.x += step
        state.report(loss=1 / (step + 1), accuracy=step / 30)
        due = oarlock.current().checkpoints / f"step-{step:010d}-g1"
        until = time.monotonic() + 10
        while step and step % 5 == 0 and not due.exists() and time.monotonic() < until:
            time.sleep(0.01)  # one that is due while another is still written is left out
        time.sleep(0.01)
    if oarlock.current().is_launched:
        (oarlock.current().model / "weights").write_text(str(state.x))
    while "LIVES" in os.environ:
        time.sleep(0.05)
"""
SHAPE = {"run", "folder", "snapshots", "fence", "checkpoints", "problem", "deleted", "freed"}
ENTRY = {
    *("name", "step", "generation", "epoch", "saved", "workers", "size"),
    *("metrics", "where", "state", "why"),
}
HEADER = ["STEP", "EPOCH", "SAVED", "GENERATION", "WORKERS", "SIZE", "METRICS", "WHERE", "STATE"]
NEWEST = "step-0000000030-g1"

Start = Callable[..., RunFolder]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OARLOCK_HOME with one run that has ended, called `mnist`. To be copied."""
    folder = tmp_path_factory.mktemp("saved")
    write(folder / "train.py", TRAIN)
    words = [str(SCRIPT), "run", "-n", "2", "--name", "mnist", "train.py"]
    env = {**os.environ, "OARLOCK_HOME": str(folder / "home")}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "home"


@pytest.fixture
def ended(saved: Path, oarlock: Any, home: Path) -> Path:
    """The run's folder of checkpoints, this test's own."""
    shutil.copytree(saved, home)
    record = home / "runs" / "mnist"
    told = (record / "agent.json").read_text().replace(str(saved), str(home))
    (record / "agent.json").write_text(told)
    return record / "checkpoints"


@pytest.fixture
def start(oarlock: Any, tmp_path: Path) -> Start:
    def make(*words: str) -> RunFolder:
        """A run that goes on after its last step, all of it saved."""
        write(tmp_path / "train.py", TRAIN)
        done = oarlock("run", "-d", "--name", "mnist", "--env", "LIVES=1", *words, "train.py")
        assert done.returncode == 0, done.stderr
        run = runs.find("mnist")
        eventually(lambda: (run.path / "checkpoints" / NEWEST).exists(), "last checkpoint")
        return run

    return make


def steps(folder: Path) -> list[int]:
    """Newest first."""
    return sorted((int(path.name.split("-")[1]) for path in folder.glob("step-*")), reverse=True)


def told(oarlock: Any, *words: str, code: int = 0) -> dict[str, Any]:
    done = oarlock("checkpoints", "--json", *words)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def damage(checkpoint: Path) -> None:
    """One bit, as a disk would."""
    path = checkpoint / "state.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_those_of_a_run_newest_first(oarlock: Any, ended: Path) -> None:
    (ended / ".saving-step-0000000035-g1").mkdir()
    done = oarlock("checkpoints")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == HEADER
    assert [int(line.split()[0]) for line in lines[1:]] == steps(ended)
    expected = r"30 +\S+ ago +1 +2 +\d+ B +loss 0\.03333  accuracy 0\.9667 +folder +complete"
    assert re.fullmatch(expected, lines[1]), lines[1]
    assert done.stderr.strip() == "oarlock checkpoints mnist --verify"


def test_as_json(oarlock: Any, ended: Path) -> None:
    found = told(oarlock, "mn")
    assert set(found) == SHAPE
    assert (found["run"], found["folder"], found["snapshots"]) == ("mnist", str(ended), None)
    assert (found["fence"], found["problem"]) == ({"run": "mnist", "generation": 1}, None)
    assert (found["deleted"], found["freed"]) == ([], 0)
    newest = found["checkpoints"][0]
    assert set(newest) == ENTRY
    assert newest["size"] == sum(path.stat().st_size for path in (ended / NEWEST).iterdir())
    assert (newest["name"], newest["step"], newest["generation"]) == (NEWEST, 30, 1)
    assert (newest["epoch"], newest["workers"], newest["where"]) == (None, 2, "folder")
    assert newest["metrics"] == {"loss": 1 / 30, "accuracy": 29 / 30}
    assert (newest["state"], newest["why"]) == ("complete", None)


def test_a_folder_of_a_program_that_ran_alone(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", TRAIN)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, timeout=300, check=True, capture_output=True)
    for words in (["./checkpoints"], ["checkpoints"], [str(tmp_path / "checkpoints")]):
        found = told(oarlock, *words)
        assert (found["run"], found["folder"]) == (None, str(tmp_path / "checkpoints"))
        assert [one["step"] for one in found["checkpoints"]] == steps(tmp_path / "checkpoints")
    assert "may add to" not in oarlock("checkpoints", "./checkpoints").stdout


def test_what_is_not_there(oarlock: Any, ended: Path, tmp_path: Path) -> None:
    missing = oarlock("checkpoints", "./nowhere")
    assert (missing.returncode, missing.stderr) == (2, "oarlock: there is no folder ./nowhere\n")
    assert oarlock("checkpoints", "nobody").stderr.startswith("oarlock: there is no run called nobody")
    (tmp_path / "empty").mkdir()
    assert oarlock("checkpoints", "empty").stdout == "empty has no checkpoints yet\n"


def test_somebody_else_may_own_the_folder(oarlock: Any, ended: Path) -> None:
    folders.Store(ended).raise_fence("other", 7)
    last = oarlock("checkpoints", "mnist").stdout.splitlines()[-1]
    assert last == f"only other in generation 7 may add to {ended} now"


def test_a_broken_manifest_is_listed_with_why(oarlock: Any, ended: Path) -> None:
    (ended / NEWEST / "manifest.json").write_text("{}")
    done = oarlock("checkpoints")
    assert done.returncode == 0
    assert re.fullmatch(r"30 +1 +\d+ B +folder +broken: its manifest is damaged", done.stdout.splitlines()[1])
    assert done.stderr.strip() == "oarlock checkpoints mnist --delete broken"


def test_verify_reads_every_byte(oarlock: Any, ended: Path) -> None:
    assert {one["state"] for one in told(oarlock, "--verify")["checkpoints"]} == {"whole"}
    damage(ended / NEWEST)
    assert told(oarlock)["checkpoints"][0]["state"] == "complete"
    first, *others = told(oarlock, "--verify", code=1)["checkpoints"]
    assert (first["step"], first["state"]) == (30, "broken")
    assert first["why"] == "state.safetensors has changed since it was written"
    assert {one["state"] for one in others} == {"whole"}


def test_delete_frees_what_it_says(oarlock: Any, ended: Path) -> None:
    before = steps(ended)
    oldest, other = before[-1], before[1]
    found = told(oarlock, "--yes", "--delete", str(oldest), "--delete", str(other))
    assert steps(ended) == [step for step in before if step not in (oldest, other)]
    assert [one["step"] for one in found["deleted"]] == [other, oldest]
    assert [one["step"] for one in found["checkpoints"]] == steps(ended)
    assert found["freed"] > 0
    done = oarlock("checkpoints", "--yes", "--delete", "30")
    assert re.fullmatch(r"deleted step 30 of generation 1 \(\d+ B\): \S+ kB freed\n", done.stdout)
    assert not [path for path in ended.iterdir() if path.name.startswith(".deleting")]


def test_delete_broken_is_all_that_are_not_whole(oarlock: Any, ended: Path) -> None:
    before = steps(ended)
    damage(ended / NEWEST)
    (ended / f"step-{before[-1]:010d}-g1" / "manifest.json").unlink()
    found = told(oarlock, "--yes", "--delete", "broken")
    assert [one["step"] for one in found["deleted"]] == [30, before[-1]]
    assert steps(ended) == before[1:-1]
    assert oarlock("checkpoints", "--yes", "--delete", "broken").stdout.startswith("deleted nothing")


def test_delete_asks_first(oarlock: Any, ended: Path, terminal: Any) -> None:
    before = steps(ended)
    unasked = oarlock("checkpoints", "--delete", "30", stdin=subprocess.DEVNULL)
    assert unasked.returncode == 2
    assert "cannot ask for confirmation without a terminal; --yes skips the question" in unasked.stderr
    for answer, code, left in (("n", 1, before), ("y", 0, before[1:])):
        asked = terminal("checkpoints", "--delete", "30")
        asked.until("delete step 30 of generation 1")
        asked.type(f"{answer}\n")
        assert asked.end() == code
        assert steps(ended) == left


def test_what_cannot_be_deleted(oarlock: Any, ended: Path) -> None:
    for words, complaint in (
        (["--delete", "31", "--yes"], f"there is no checkpoint of step 31 in {ended}"),
        (["--delete", "last"], "--delete last: expected a step, or `broken`"),
        (["--yes"], "--snapshots, --yes and --force are for --delete STEP"),
    ):
        done = oarlock("checkpoints", *words)
        assert done.returncode != 0
        assert done.stderr.startswith(f"oarlock: {complaint}"), done.stderr


def test_what_a_living_run_would_go_on_from_is_kept(oarlock: Any, start: Start) -> None:
    run = start()
    folder = run.path / "checkpoints"
    for words in (["mnist"], [str(folder)]):
        done = oarlock("checkpoints", *words, "--yes", "--delete", "30")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{NEWEST} in {folder} is the newest whole checkpoint" in done.stderr
    assert oarlock("checkpoints", "--yes", "--delete", str(steps(folder)[-1])).returncode == 0
    damage(folder / NEWEST)
    second = steps(folder)[1]
    assert oarlock("checkpoints", "--yes", "--delete", str(second)).returncode == 1, (
        "it is the newest whole one"
    )
    assert oarlock("checkpoints", "--yes", "--delete", "30").returncode == 0
    assert oarlock("checkpoints", "--yes", "--force", "--delete", str(second)).returncode == 0
    assert not {30, second} & set(steps(folder))


@pytest.mark.parametrize("words", [[], ["--json"], ["--verify"], ["--yes", "--delete", "30"]])
def test_a_local_run_needs_no_framework_no_client_and_no_bucket(words: list[str], ended: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", SCRIPT, "checkpoints", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    heavy = {"tensorflow", "keras", "torch", "jax", "numpy", "lightkube", "httpx2", "rich", "yaml", "obstore"}
    assert not loaded & heavy


class TestSnapshots:
    pytestmark = needs_store
    URL = f"s3://{BUCKET}/mine"

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
        with serving(tmp_path / "bucket", monkeypatch) as store:
            yield store

    @pytest.fixture
    def run(self, oarlock: Any, store: Store, tmp_path: Path) -> RunFolder:
        """It has ended; its model and its newest checkpoint are in the bucket."""
        write(tmp_path / "train.py", TRAIN)
        done = oarlock("run", "--name", "mnist", "--set", f"storage.snapshots={self.URL}", "train.py")
        assert done.returncode == 0, done.stdout + done.stderr
        return runs.find("mnist")

    def test_are_listed_too(self, oarlock: Any, run: RunFolder, store: Store) -> None:
        begun = store.folder / BUCKET / "mine" / "mnist" / "step-0000000031-g1" / "claim"
        begun.parent.mkdir()
        begun.write_text("somebody")
        found = told(oarlock)
        assert found["snapshots"] == f"{self.URL}/mnist"
        first, folder, kept, *_, model = found["checkpoints"]
        assert (first["step"], first["state"]) == (31, "incomplete")
        assert (folder["step"], folder["where"]) == (30, "folder")
        assert (kept["step"], kept["where"]) == (30, f"{self.URL}/mnist")
        assert (kept["metrics"], kept["workers"]) == (folder["metrics"], 1)
        assert (model["name"], model["step"], model["state"]) == ("model", None, "complete")
        done = oarlock("checkpoints")
        assert re.search(rf"^30 .* {self.URL}/mnist +complete$", done.stdout, re.MULTILINE)
        assert re.search(r"^31 .*incomplete: its upload was not completed$", done.stdout, re.MULTILINE)

    def test_are_verified_too(self, oarlock: Any, run: RunFolder, store: Store) -> None:
        assert {one["state"] for one in told(oarlock, "--verify")["checkpoints"]} == {"whole"}
        damage(store.folder / BUCKET / "mine" / "mnist" / NEWEST)
        found = told(oarlock, "--verify", code=1)
        [broken] = [one for one in found["checkpoints"] if one["state"] == "broken"]
        assert (broken["step"], broken["where"]) == (30, f"{self.URL}/mnist")

    def test_are_deleted_only_if_told_to(self, oarlock: Any, run: RunFolder, store: Store) -> None:
        assert oarlock("checkpoints", "--yes", "--delete", "30").returncode == 0
        assert f"mine/mnist/{NEWEST}/manifest.json" in store.objects()
        again = oarlock("checkpoints", "--yes", "--delete", "30")
        assert "only a snapshot, which --snapshots deletes" in again.stderr
        assert oarlock("checkpoints", "--yes", "--snapshots", "--delete", "30").returncode == 0
        assert not [name for name in store.objects() if name.startswith(f"mine/mnist/{NEWEST}/")]
        assert "mine/mnist/model/manifest.json" in store.objects()

    def test_out_of_reach_are_one_line(self, oarlock: Any, run: RunFolder, store: Store) -> None:
        store.kill()
        done = oarlock("checkpoints")
        assert (done.returncode, done.stdout.splitlines()[0].split()) == (0, HEADER)
        [line] = [line for line in done.stderr.splitlines() if line.startswith("oarlock: ")]
        assert line.startswith(f"oarlock: the snapshots in {self.URL} cannot be reached: ")
        assert store.key not in line
        found = told(oarlock)
        assert found["checkpoints"]
        assert found["problem"].startswith("the snapshots in")
        refused = oarlock("checkpoints", "--yes", "--snapshots", "--delete", "30")
        assert refused.returncode == 1
        assert "nothing was deleted" in refused.stderr
        assert 30 in steps(run.path / "checkpoints")
        assert told(oarlock, "--verify", code=1)["checkpoints"], (
            "what cannot be read is not known to be whole"
        )

    def test_without_obstore_are_one_line(self, oarlock: Any, run: RunFolder, tmp_path: Path) -> None:
        (tmp_path / "obstore.py").write_text("raise ImportError")
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = oarlock("checkpoints", env=env)
        assert done.returncode == 0
        assert f"the snapshots in {self.URL} cannot be read without obstore" in done.stderr
        assert "pip install 'oarlock[storage]'" in done.stderr

    def test_are_brought_here(self, oarlock: Any, run: RunFolder, store: Store, tmp_path: Path) -> None:
        shutil.rmtree(run.path / "model")
        shutil.rmtree(run.path / "checkpoints")
        done = oarlock("pull", "--snapshots", "--what", "all", "--to", "here", "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        place = tmp_path / "here"
        assert told["folders"] == {
            "model": str(place / "model"),
            "checkpoints": str(place / "checkpoints" / NEWEST),
        }
        assert (told["from"], told["absent"]) == (f"{self.URL}/mnist", [])
        assert (place / "model" / "weights").read_text() == str(sum(range(30)))
        [name] = folders.Store(place / "checkpoints").names()
        newest, complaints = folders.Store(place / "checkpoints").newest()
        assert (name, newest and newest.step, complaints) == (NEWEST, 30, [])
        again = oarlock("pull", "--snapshots", "--to", "here")
        assert again.returncode == 1
        assert "here/model exists" in again.stderr
        assert oarlock("pull", "--snapshots", "--to", "here", "--force").returncode == 0
        assert oarlock("pull", "--snapshots").returncode == 0
        assert (run.path / "snapshots" / "model" / "weights").exists()

    def test_a_damaged_one_changes_nothing_here(
        self, oarlock: Any, run: RunFolder, store: Store, tmp_path: Path
    ) -> None:
        damage(store.folder / BUCKET / "mine" / "mnist" / NEWEST)
        done = oarlock("pull", "--snapshots", "--step", "30", "--to", "here")
        assert done.returncode == 1
        assert "state.safetensors has changed since it was written" in done.stderr
        assert not (tmp_path / "here").exists()
        missing = oarlock("pull", "--snapshots", "--step", "7")
        assert "has no complete snapshot of step 7" in missing.stderr
