"""Snapshots in every kind of object storage: the same on servers of three protocols, and in a folder."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oarlock.checkpoints import redact
from oarlock.checkpoints.bucket import PART, Bucket, ChangedError
from oarlock.checkpoints.manifest import FileEntry, sealed
from oarlock.engines.shared.snapshot_store import Snapshots
from oarlock.engines.shared.specs import resolve
from oarlock.job.model import parse
from tests.support.other_stores import S3, Azure, Google, ObjectServer
from tests.support.stores import needs_store

PATIENCE = 120.0
STEP = "step-0000000005-g1"


class Folder:
    """A folder, which needs no server."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder)

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def env(self) -> dict[str, str]:
        return {}

    def secrets(self) -> list[str]:
        return []


KINDS: list[object] = [
    pytest.param(S3, id="s3", marks=needs_store),
    pytest.param(Google, id="gs", marks=needs_store),
    pytest.param(Azure, id="az"),
    pytest.param(Folder, id="folder"),
]
SERVERS = KINDS[:3]


@pytest.fixture(scope="module", params=KINDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ObjectServer]:
    """One for all tests, each of which has a folder of its own in it: Azurite takes its time to start."""
    make: Callable[[Path], ObjectServer] = request.param
    found = make(tmp_path_factory.mktemp("server"))
    found.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.env().items():
            patch.setenv(name, value)
        yield found
    found.kill()


@pytest.fixture
def place(server: ObjectServer, tmp_path: Path) -> str:
    return f"{server.url}/{tmp_path.name}"


def sent(bucket: Bucket, folder: Path, name: str, file: str, data: bytes) -> FileEntry:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    entry: FileEntry = {"size": len(data), "crc32": f"{zlib.crc32(data):08x}"}
    bucket.send(name, file, path, entry, lambda: None)
    return entry


def test_files_of_any_size_come_back_as_they_were(place: str, tmp_path: Path) -> None:
    bucket = Bucket(place, "run", PATIENCE)
    assert bucket.names() == []
    contents = {
        "empty": b"",
        "state.safetensors": os.urandom(1000),
        "deep/er/näme with space+&%": b"x",
        "large": os.urandom(3 * PART + 17),  # in several parts
    }
    for file, data in contents.items():
        sent(bucket, tmp_path, STEP, file, data)
    for file, data in contents.items():
        assert bucket.size(STEP, file) == len(data)
        if data:
            assert bucket.receive(STEP, file, 0, min(PART, len(data))) == data[:PART]
    assert bucket.receive(STEP, "large", 2 * PART, 3 * PART + 17) == contents["large"][2 * PART :]
    assert bucket.size(STEP, "nothing") is None
    assert bucket.names() == [STEP]


def test_nobody_writes_where_another_has_begun(place: str) -> None:
    bucket = Bucket(place, "run", PATIENCE)
    assert bucket.claim(STEP, "me")
    assert bucket.claim(STEP, "me"), "again, after a restart"
    assert not bucket.claim(STEP, "you")
    assert bucket.claim("model/3", "you")


def test_a_manifest_is_written_once(place: str) -> None:
    bucket = Bucket(place, "run", PATIENCE)
    assert bucket.manifest(STEP) is None
    bucket.complete(STEP, b"first")
    bucket.complete(STEP, b"first")
    with pytest.raises(Exception, match=r"(?i)exist"):
        bucket.complete(STEP, b"second")
    assert bucket.manifest(STEP) == b"first"


def test_a_file_that_changes_meanwhile_is_never_complete(place: str, tmp_path: Path) -> None:
    bucket = Bucket(place, "run", PATIENCE)
    for size in (1000, 2 * PART):
        file = tmp_path / f"file-{size}"
        file.write_bytes(os.urandom(size))
        with pytest.raises(ChangedError):
            bucket.send(STEP, file.name, file, {"size": size, "crc32": "00000000"}, lambda: None)
        assert bucket.size(STEP, file.name) is None


def test_a_client_lists_and_deletes(place: str, tmp_path: Path) -> None:
    bucket = Bucket(place, "run", PATIENCE)
    for name in (STEP, "step-0000000006-g1", "model/1", "model/2"):
        assert bucket.claim(name, "me")
        entry = sent(bucket, tmp_path, name, "file", b"12345")
        step = {"step": int(name[5:15]), "generation": 1} if name.startswith("step") else {}
        bucket.complete(name, sealed({"format": 1, "run": "run", "files": {"file": entry}, **step}))
    job = parse({"program": "train.py", "storage": {"snapshots": place}})
    kept = Snapshots(resolve(job, tmp_path, "run"), is_ours=True)
    found = [(one["name"], one["state"]) for one in kept.entries(verifies=True)]
    names = ["step-0000000006-g1", STEP, "model/2", "model/1"]
    assert found == [(name, "whole") for name in names]
    kept.delete([STEP])
    assert (bucket.manifest(STEP), bucket.size(STEP, "file")) == (None, None)
    assert bucket.manifest("step-0000000006-g1") is not None


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_a_wrong_key_or_bucket_is_said_without_the_key(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match=r".") as nowhere:
        Bucket(f"{server.url}-elsewhere/mine", "run", PATIENCE).names()
    wrong = {
        "AWS_SECRET_ACCESS_KEY",
        "GOOGLE_BEARER_TOKEN",
        "AZURE_STORAGE_ACCOUNT_KEY",
    } & server.env().keys()
    for name in wrong:
        monkeypatch.setenv(name, f"AAAA{server.env()[name][4:]}")
    with pytest.raises(Exception, match=r".") as refused:
        Bucket(f"{server.url}/mine", "run", PATIENCE).names()
    for error in (nowhere.value, refused.value):
        told = redact.reason(error)
        assert told
        assert "\n" not in told
        assert not [one for one in (*server.secrets(), *map(os.environ.__getitem__, wrong)) if one in told]
    assert redact.is_refusal(refused.value), str(refused.value)
    with pytest.raises(Exception, match=r".") as again:
        Bucket(f"{server.url}/mine", "run", PATIENCE).names()
    assert redact.kind(again.value) == redact.kind(refused.value), "it is said once"
