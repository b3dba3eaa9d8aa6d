"""Snapshots on a real S3 server: what is uploaded, what is fetched, and what a bad store does: nothing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.protocol.pod_paths import STORE
from oarlock.checkpoints import bucket, redact
from oarlock.checkpoints.manifest import sealed, unseal
from oarlock.checkpoints.store import checksum
from oarlock.engines.kubernetes.manifests import packing
from oarlock.engines.local import local_engine
from oarlock.errors import JobError, OarlockError
from oarlock.job import model
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.system import processes
from tests.support.gangs import Gang, until_gone
from tests.support.soaking import moments
from tests.support.stores import (
    BUCKET,
    SAVES,
    Narrow,
    Store,
    complete,
    needs_store,
    newest,
    serving,
    state_after,
)
from tests.support.waiting import eventually

pytestmark = needs_store

Train = Callable[..., Gang]


@pytest.fixture
def store(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Its keys are made up for the test, and when that is over they are in no file of a run."""
    with serving(tmp_path / "bucket", monkeypatch) as store:
        yield store
        end_all()
    secrets = {store.key.encode(), store.secret.encode(), os.environ["AWS_SECRET_ACCESS_KEY"].encode()}
    files = [path for top in (home, tmp_path / "job") for path in top.rglob("*") if path.is_file()]
    assert not [path for path in files if any(secret in path.read_bytes() for secret in secrets)]


@pytest.fixture
def train(home: Path, tmp_path: Path) -> Iterator[Train]:
    def start(
        steps: int = 6,
        size: int = 1000,
        pause: float = 0.05,
        url: str = f"s3://{BUCKET}/mine",
        **fields: Any,
    ) -> Gang:
        args = [str(steps), str(size), str(pause)]
        return Gang(
            tmp_path / "job", SAVES, roles={"worker": 1}, args=args, storage={"snapshots": url}, **fields
        )

    yield start
    end_all()


def end_all() -> None:
    for run in runs.all_runs():
        local_engine.stop(run, now=True)
        until_free(run)


def until_free(run: RunFolder) -> None:
    eventually(lambda: not run.is_held(), f"end of {run.name}", every=0.01)


def lose_machine(gang: Gang, home: Path, store: Store) -> None:
    """Without a word, and with everything on it."""
    assert gang.state.agent
    everybody = [gang.state.agent, *processes.descendants(gang.state.agent)]
    os.kill(gang.state.agent, signal.SIGKILL)
    until_gone(everybody)
    store.settle()
    shutil.rmtree(home)


def child_of(gang: Gang, module: str) -> list[int]:
    assert gang.state.agent
    pids = processes.descendants(gang.state.agent)
    return [pid for pid in pids if f"oarlock.agent.{module}" in command(pid)]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def start_of(gang: Gang) -> int:
    """The step after which its (last) generation began."""
    [line] = [line for line in gang.lines if "starting after step" in line][-1:]
    return int(line.rsplit(" ", 1)[1])


def notes(gang: Gang) -> str:
    return "\n".join(event["text"] for event in gang.of("note"))


def until_said_again(gang: Gang, text: str) -> None:
    before = notes(gang).count(text)
    gang.until(lambda gang: notes(gang).count(text) > before, text)


def test_checkpoints_and_the_model_are_uploaded(train: Train, store: Store) -> None:
    gang = train(steps=6)
    assert gang.end().state == "succeeded", gang.told()
    names = complete(store, gang.run.name)
    assert {"model", "step-0000000006-g1"} <= set(names)
    weights = store.objects()[f"mine/{gang.run.name}/model/weights/state"]
    assert weights.read_bytes() == state_after(6)
    assert f"snapshots go to s3://{BUCKET}/mine/{gang.run.name}" in notes(gang)
    assert {event["name"] for event in gang.of("snapshot")} == set(names)


def test_a_run_whose_machine_is_lost_goes_on_elsewhere_with_the_same_bits(
    train: Train, store: Store, home: Path
) -> None:
    first = train(steps=10**6, run="moved")
    first.until(lambda gang: newest(complete(store)) >= 5, "snapshot of step 5")
    lose_machine(first, home, store)
    there = newest(complete(store))
    gang = train(steps=there + 5, run="moved")
    assert gang.end().state == "succeeded", gang.told()
    assert start_of(gang) == there
    assert gang.state.generation == 2, "later than any in the store"
    weights = store.objects()["mine/moved/model/weights/state"]
    assert weights.read_bytes() == state_after(there + 5)
    assert f"resuming from step {there}" in notes(gang)


def test_nothing_is_written_over(train: Train, store: Store, home: Path) -> None:
    train(steps=3, run="moved").end()
    before = {name: path.read_bytes() for name, path in store.objects().items()}
    shutil.rmtree(home)
    assert train(steps=3, run="moved").end().state == "succeeded"
    assert {name: path.read_bytes() for name, path in store.objects().items()} == before, (
        "it is there already"
    )
    shutil.rmtree(home)
    assert train(steps=4, run="moved").end().state == "succeeded"
    after = {name: path.read_bytes() for name, path in store.objects().items()}
    assert before.items() <= after.items()
    assert after["mine/moved/model_2/weights/state"] == state_after(4)
    assert {"model", "model_2"} <= set(complete(store))


def test_a_server_killed_in_mid_upload_costs_nothing(train: Train, store: Store, home: Path) -> None:
    parts = store.folder / BUCKET / ".sgwtmp"
    gang = train(steps=10**6, size=40 << 20, pause=0.3, run="moved")
    for _ in range(moments(1)):
        gang.until(lambda gang: any(path.is_file() for path in parts.rglob("*")), "part of an upload")
        store.kill()
        until_said_again(gang, "cannot upload snapshots")
        store.start()
        until_said_again(gang, "uploaded again")
    lose_machine(gang, home, store)
    for name in complete(store):
        folder = store.folder / BUCKET / "mine" / "moved" / name
        manifest = unseal((folder / "manifest.json").read_bytes())
        assert isinstance(manifest, dict)
        assert checksum(folder / "state.bin") == tuple(manifest["files"]["state.bin"].values())
    there = newest(complete(store))
    again = train(steps=there + 1, size=1000, run="moved")
    assert again.end().state == "succeeded", again.told()
    assert start_of(again) == there


def test_trouble_is_said_once_and_that_it_is_over_too(train: Train, store: Store) -> None:
    store.kill()
    gang = train(steps=10**6)
    gang.until(lambda gang: "cannot upload snapshots" in notes(gang), "word of the trouble")
    gang.until_step(30)
    store.start()
    gang.until(lambda gang: "uploaded again" in notes(gang), "word that it works")
    told = notes(gang)
    assert (told.count("cannot upload snapshots"), told.count("uploaded again")) == (1, 1)
    assert f"http://127.0.0.1:{store.port}" in told


def test_wrong_credentials_are_said_and_training_goes_on(
    train: Train, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" + "x" * 30)
    gang = train(steps=5)
    assert gang.end().state == "succeeded", gang.told()
    assert "SignatureDoesNotMatch" in notes(gang)
    assert f"not uploaded to s3://{BUCKET}/mine: model, step-0000000005-g1" in notes(gang)
    assert not complete(store, gang.run.name)


def test_a_named_run_does_not_begin_afresh_while_it_cannot_ask_for_snapshots(
    train: Train, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NOBODY" + "x" * 14)
    gang = train(run="moved")
    state = gang.end()  # long before limits.rendezvous: the store has answered
    assert state.state == "failed"
    assert "cannot be read: XAdminUserNotFound" in (state.reason or "")
    assert "starting over from step 0" in (state.reason or "")
    assert not gang.lines


def test_what_is_here_is_gone_on_from_while_the_store_is_away(train: Train, store: Store) -> None:
    gang = train(steps=10**6, run="moved").until_step(3)
    local_engine.stop(gang.run)
    gang.end()
    store.kill()
    local_engine.resume(gang.run)
    gang.until(lambda gang: "which is here" in notes(gang), "word of what it does")
    gang.until_step(5, generation=2)
    assert start_of(gang) >= 3


def test_a_run_can_be_stopped_while_it_waits_for_the_store(train: Train, store: Store) -> None:
    store.kill()
    gang = train(run="moved").until(lambda gang: "retrying" in notes(gang), "word of the trouble")
    local_engine.stop(gang.run)
    state = gang.end()
    assert (state.state, state.code) == ("stopped", 130)


def test_a_slow_store_gets_the_newest_and_does_not_hold_the_training(
    train: Train, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = Narrow(store.port, 2_000_000)
    narrow.open.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{narrow.port}")
    gang = train(steps=30, size=500_000, pause=0.02)
    gang.until_step(30)
    assert not complete(store, gang.run.name), "not a byte has passed, and all steps are made"
    narrow.open.set()
    assert gang.end().state == "succeeded", gang.told()
    names = complete(store, gang.run.name)
    assert {"model", "step-0000000030-g1"} <= set(names)
    assert len(names) < 10, "those that retention took meanwhile are left out"
    assert "not whole" not in notes(gang)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_store_stops_nothing_and_holds_nothing_torn(
    train: Train, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True, timeout=300)
    store = Store(folder)
    store.start()
    try:
        for name, value in store.env().items():
            monkeypatch.setenv(name, value)
        (folder / "filler").write_bytes(b"x" * (3 << 20))
        gang = train(steps=10**6, size=1 << 20, run="moved")
        gang.until(lambda gang: "cannot upload snapshots" in notes(gang), "word of the trouble")
        gang.until_step(20)
        assert not complete(store)
        (folder / "filler").unlink()
        gang.until(lambda gang: "uploaded again" in notes(gang), "word that it works")
        lose_machine(gang, home, store)
        there = newest(complete(store))
        again = train(steps=there + 1, size=10, run="moved").until(lambda gang: gang.lines, "start")
        assert start_of(again) == there
        local_engine.stop(again.run, now=True)
    finally:
        store.kill()
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=300)


def test_what_is_not_whole_is_passed_over_with_a_line(train: Train, store: Store, home: Path) -> None:
    train(steps=4, run="moved").end()
    shutil.rmtree(home)
    run = store.folder / BUCKET / "mine" / "moved"
    for step in (7, 8, 9):
        copy = run / f"step-000000000{step}-g1"
        shutil.copytree(run / "step-0000000004-g1", copy)
        manifest = unseal((copy / "manifest.json").read_bytes())
        assert isinstance(manifest, dict)
        (copy / "manifest.json").write_bytes(sealed({**manifest, "step": step}))
    (run / "step-0000000007-g1" / "state.bin").write_bytes(os.urandom(1032))
    (run / "step-0000000008-g1" / "state.bin").write_bytes(b"short")
    (run / "step-0000000009-g1" / "manifest.json").unlink()
    gang = train(steps=5, run="moved")
    assert gang.end().state == "succeeded", gang.told()
    assert start_of(gang) == 4
    told = [line for line in notes(gang).splitlines() if "skipped snapshot" in line]
    assert [line.split()[2] for line in told] == [f"step-000000000{step}-g1," for step in (9, 8, 7)]
    assert [line.split(": ")[1] for line in told] == [
        "its upload was not completed",
        "state.bin has 5 bytes instead of 1032",
        "state.bin has changed since it was written",
    ]


def test_a_damaged_checkpoint_is_not_uploaded(train: Train, store: Store, tmp_path: Path) -> None:
    store.kill()
    gang = train(steps=10**6, pause=0.2).until_step(3)
    os.kill(gang.pid("worker-0"), signal.SIGSTOP)
    folder = gang.run.path / "checkpoints"
    damaged = max(path.name for path in folder.glob("step-*"))
    (folder / damaged / "state.bin").write_bytes(os.urandom(1032))
    store.start()
    gang.until(
        lambda gang: f"{damaged} is not uploaded, because it is not whole" in notes(gang), "word of it"
    )
    gang.until(lambda gang: complete(store, gang.run.name), "snapshot of another")
    assert damaged not in complete(store, gang.run.name)


def test_an_uploader_that_dies_is_started_again(train: Train, store: Store) -> None:
    gang = train(steps=10**6).until(lambda gang: gang.of("snapshot"), "snapshot")
    for pid in child_of(gang, "snapshots.uploader"):
        os.kill(pid, signal.SIGKILL)
    gang.until(lambda gang: "is restarted" in notes(gang), "word of it")
    before = newest(complete(store, gang.run.name))
    gang.until(lambda gang: newest(complete(store, gang.run.name)) > before, "snapshot by another")


def test_a_folder_is_a_store_too(train: Train, home: Path, tmp_path: Path) -> None:
    train(steps=4, url="backup", run="moved").end()
    assert (tmp_path / "job" / "backup" / "moved" / "model" / "about.txt").read_text() == "a model"
    shutil.rmtree(home)
    gang = train(steps=5, url="backup", run="moved")
    assert gang.end().state == "succeeded", gang.told()
    assert start_of(gang) == 4


def test_a_file_in_the_place_of_the_folder_is_refused(train: Train, tmp_path: Path) -> None:
    file = tmp_path / "job" / "snaps"
    file.parent.mkdir()
    file.write_text("")
    for asked in ("snaps", "./snaps/deep", str(file)):
        with pytest.raises(
            JobError, match=f"^storage.snapshots takes a folder or a URL, and {file} is a file$"
        ):
            train(url=asked)
    assert not runs.all_runs()


def test_without_obstore_a_run_is_refused(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text("import sys; sys.modules['obstore'] = None")
    state = train(url="backup", env={"PYTHONPATH": str(tmp_path / "without")}).end()
    assert state.state == "failed"
    assert state.reason == (
        "storage.snapshots needs obstore, which is not installed here: pip install 'oarlock[storage]'"
    )
    monkeypatch.setattr(bucket, "is_here", lambda: False)
    with pytest.raises(OarlockError, match="needs obstore: pip install"):
        train(url="backup")


def test_a_pod_is_told_where_snapshots_go(tmp_path: Path) -> None:
    def told(place: str) -> str:
        parsed = model.parse({"program": "train.py", "storage": {"snapshots": place}})
        return packing.spec_for(parsed, tmp_path, "run").snapshots

    assert told("s3://bucket/folder") == "s3://bucket/folder"
    assert told("backup") == f"{STORE}/backup", "on the claim"


def test_the_commands_of_its_page_work(
    oarlock: Callable[..., subprocess.CompletedProcess[str]], store: Store, home: Path, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "snapshots.md").read_text()
    here, in_a_pod = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    first, second = re.findall(r"^\$ oarlock (.*)$", page, re.MULTILINE)
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text("import sys; sys.argv += ['3', '100', '0.1']\n" + SAVES)
    (folder / "job.yaml").write_text(in_a_pod)
    assert oarlock("run", "--dry-run", cwd=folder).returncode == 0
    (folder / "job.yaml").write_text(here)
    (store.folder / "my-bucket").mkdir()
    done = oarlock(*first.split(), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(home)
    done = oarlock(*second.split(), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(
        r"oarlock \| fetched snapshot step-0000000003-g1 in .* s: resuming from step 3", done.stdout
    )


def test_errors_are_told_without_keys() -> None:
    error = ValueError(
        "Error performing PUT http://a:b@host/x in 5ms - 403: <Error><Code>Denied</Code>"
        "<Message>no user sesame1234</Message><AWSAccessKeyId>sesame1234</AWSAccessKeyId></Error>"
    )
    assert redact.reason(error) == "Denied: no user sesame1234"
    env = {"MY_ACCESS_KEY": "sesame1234", "AWS_ALLOW_HTTP": "true", "A_TOKEN": "1"}
    assert redact.redacted(redact.reason(error), env) == "Denied: no user ***"
    assert redact.redacted("at http://a:b@host/x, 1 true", env) == "at http://***@host/x, 1 true"
