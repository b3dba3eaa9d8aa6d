"""The weights that a new run starts with become its checkpoint of step 0: which, from where, and why not."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.snapshots.snapshot_messages import Begin
from oarlock.agent.snapshots.weights_fetch import bring
from oarlock.checkpoints import initial_weights
from oarlock.checkpoints.manifest import FORMAT
from oarlock.checkpoints.store import Checkpoint, Store, checksum
from tests.support import flushes
from tests.support.gangs import Gang
from tests.support.stores import BUCKET, needs_store, serving

STARTS = """
import os, oarlock
print(*sorted(os.listdir(os.environ["CHECKPOINT_DIR"]))[-1:], oarlock.current().generation)
"""


def add(store: Store, step: int, run: str, content: bytes = b"weights") -> Checkpoint:
    draft = store.draft(step, 1)
    draft.mkdir(parents=True)
    (draft / "state").write_bytes(content)
    size, crc = checksum(draft / "state")
    files = {"state": {"size": size, "crc32": crc}}
    return store.commit(
        draft, {"format": FORMAT, "run": run, "generation": 1, "step": step, "metrics": {}, "files": files}
    )


@pytest.fixture
def bee(tmp_path: Path) -> Store:
    store = Store(tmp_path / "bee")
    add(store, 10, "bee", b"of bee, 10")
    add(store, 20, "bee", b"of bee, 20")
    return store


@pytest.fixture
def cat(tmp_path: Path) -> Store:
    store = Store(tmp_path / "cat")
    add(store, 30, "cat", b"of cat, 30")
    return store


class Bringing:
    """What the process says, and what the new run then starts from."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = Store(folder)
        self._capsys = capsys

    def __call__(self, place: object, run: str = "new") -> tuple[int, list[str]]:
        """The exit code and the text of its lines."""
        code = bring(Begin(str(place), run, str(self.store.folder), 5.0))
        lines: list[dict[str, Any]] = [
            json.loads(line) for line in self._capsys.readouterr().out.splitlines()
        ]
        return code, [str(line.get("text", line.get("reason"))) for line in lines]

    @property
    def origin(self) -> str | None:
        found, _ = self.store.newest()
        return None if found is None else initial_weights.origin(found.manifest)


@pytest.fixture
def bringing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bringing:
    return Bringing(tmp_path / "new", capsys)


# What is there already


def test_weights_of_another_source_are_replaced(bringing: Bringing, bee: Store, cat: Store) -> None:
    """The folder is fixed by the job, or the snapshots of an earlier run of this name were fetched."""
    assert bringing(bee.folder) == (0, [])
    assert bringing.origin == "bee, step 20"
    assert bringing(cat.folder) == (
        0,
        [f"step-0000000000-g0 had the weights of bee, step 20; this run starts from {cat.folder} instead"],
    )
    assert bringing.origin == "cat, step 30"
    assert bringing(f"{bee.folder}@10")[0] == 0
    assert bringing.origin == "bee, step 10"


def test_weights_that_another_run_left_are_brought_again(bringing: Bringing, bee: Store) -> None:
    assert bringing(bee.folder, "first") == (0, [])
    add(bee, 40, "bee", b"of bee, 40")
    assert bringing(bee.folder, "second")[0] == 0
    assert bringing.origin == "bee, step 40", "the newest when the second run started"


def test_a_restarted_run_keeps_its_weights_even_without_their_source(bringing: Bringing, bee: Store) -> None:
    assert bringing(bee.folder) == (0, [])
    for checkpoint in bee.checkpoints():
        bee.delete(checkpoint)
    assert bringing(bee.folder) == (0, [])
    assert bringing.origin == "bee, step 20"


def test_checkpoints_of_its_own_win(bringing: Bringing, bee: Store) -> None:
    add(bringing.store, 5, "new")
    assert bringing(bee.folder) == (
        0,
        [f"{bee.folder} is not used: the run has checkpoints of its own (step-0000000005-g1)"],
    )
    assert bringing.store.names() == ["step-0000000005-g1"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_damaged_step_0_is_brought_again_or_the_run_fails(
    bringing: Bringing, bee: Store, is_lost: bool
) -> None:
    """The program would skip it, and start from random weights."""
    assert bringing(bee.folder)[0] == 0
    file = bringing.store.folder / initial_weights.NAME / "state"
    content = file.read_bytes()
    file.unlink()  # it is a link to the other run's
    file.write_bytes(b"O" + content[1:])
    if is_lost:
        bee.folder.rename(bee.folder.with_name("elsewhere"))
    code, [skipped, *more] = bringing(bee.folder)
    assert skipped == "skipped step-0000000000-g0, which is not whole: state has changed since it was written"
    if is_lost:
        assert (code, more) == (1, [f"cannot load the initial weights: there is no {bee.folder}"])
    else:
        assert (code, more, bringing.origin) == (0, [], "bee, step 20")


# Where it comes from


def test_a_damaged_one_is_skipped_with_a_note(bringing: Bringing, bee: Store) -> None:
    (bee.folder / "step-0000000020-g1" / "state").write_bytes(b"or wee, 20")
    assert bringing(bee.folder) == (
        0,
        [
            f"{bee.folder}: skipped step-0000000020-g1, which is not whole: "
            "state has changed since it was written"
        ],
    )
    assert bringing.origin == "bee, step 10"


def test_a_single_checkpoint_has_one_step(bringing: Bringing, bee: Store) -> None:
    place = bee.folder / "step-0000000010-g1"
    assert bringing(f"{place}@20") == (
        1,
        [f"cannot load the initial weights: {place} is the checkpoint of step 10, not of step 20"],
    )
    assert bringing(f"{place}@10") == (0, [])
    assert bringing.origin == "bee, step 10"


def test_a_checkpoint_that_retention_deletes_meanwhile_is_said(
    bringing: Bringing, bee: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        bee.delete(bee.checkpoints()[-1])
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    code, [told] = bringing(bee.folder)
    assert code == 1
    assert told == (
        f"cannot load the initial weights: {bee.folder}/step-0000000020-g1 was deleted while it was copied: "
        "start again, from one that is kept"
    )
    assert bringing.store.names() == []


def test_a_copy_is_on_the_disk_before_it_counts(
    bringing: Bringing, bee: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another disk there are no links."""

    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    flushed = flushes.recorded(monkeypatch)
    assert bringing(bee.folder) == (0, [])
    assert flushed[0] == "flush state 10"
    assert bringing.origin == "bee, step 20"


@needs_store
def test_checkpoints_at_the_root_of_a_bucket(
    bringing: Bringing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path / "bucket", monkeypatch) as bucket:
        root, url = Store(bucket.folder / BUCKET), f"s3://{BUCKET}"
        assert bringing(url) == (1, [f"cannot load the initial weights: {url} has no complete checkpoint"])
        add(root, 10, "bee", b"of bee, 10")
        add(root, 20, "bee", b"of bee, 20")
        add(Store(root.folder / "deep" / "one"), 30, "one", b"of one, 30")
        for place, origin in (
            (url, "bee, step 20"),
            (f"{url}/@10", "bee, step 10"),
            (f"{url}/step-0000000010-g1", "bee, step 10"),
            (f"{url}/step-0000000020-g1@20", "bee, step 20"),
            (f"{url}/deep/one/", "one, step 30"),
            (f"{url}/deep/one/step-0000000030-g1", "one, step 30"),
        ):
            code, told = bringing(place)
            assert (code, bringing.origin) == (0, origin), (place, told)
        single = f"{url}/step-0000000010-g1"
        code, told = bringing(f"{single}@20")
        why = f"cannot load the initial weights: {single} is the checkpoint of step 10, not of step 20"
        assert (code, told[-1]) == (1, why)
        code, told = bringing("s3://nobody-has-this")
        assert (code, "NoSuchBucket" in told[-1]) == (1, True), told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bucket", "new"], "no folder s3:"


@needs_store
@pytest.mark.usefixtures("home")
def test_a_run_with_weights_from_a_bucket_starts_with_generation_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "bucket", monkeypatch) as bucket:
        add(Store(bucket.folder / BUCKET / "one"), 30, "one")
        roles = {"worker": 1}
        gang = Gang(tmp_path / "job", STARTS, roles=roles, storage={"weights": f"s3://{BUCKET}/one"})
        assert gang.end().state == "succeeded", gang.told()
    assert gang.lines == ["worker-0| step-0000000000-g0 1"]
    assert gang.state.generation == 1
