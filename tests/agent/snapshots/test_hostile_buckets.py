"""Whatever a bucket holds: nothing outside of the folder is created, changed or deleted, and of what makes no
sense nothing is left inside."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.snapshots.downloader import Downloader
from oarlock.agent.snapshots.snapshot_messages import Download
from oarlock.checkpoints import bucket
from oarlock.checkpoints.manifest import sealed
from oarlock.engines.shared import pull_snapshots, specs
from oarlock.errors import OarlockError
from oarlock.job.model import Job, Storage
from tests.support.stores import BUCKET, Store, needs_store, serving
from tests.support.trees import snapshot

pytestmark = needs_store

URL = f"s3://{BUCKET}/mine"
NAME = "step-0000000007-g3"
TOLD = {"size": 4, "crc32": f"{zlib.crc32(b'evil'):08x}"}
GOOD: dict[str, Any] = {"format": 1, "run": "r1", "step": 7, "generation": 3, "files": {"state.bin": TOLD}}
MANIFESTS: dict[str, Any] = {
    "a generation that leads out": {**GOOD, "generation": "3/../../../../precious"},
    "a step that leads out": {**GOOD, "step": "7/../../../precious"},
    "no step": {key: value for key, value in GOOD.items() if key != "step"},
    "another step": {**GOOD, "step": 8},
    "another generation": {**GOOD, "generation": 4},
    "a step that is true": {**GOOD, "step": True},
    "a step with a point": {**GOOD, "step": 7.0},
    "a later format": {**GOOD, "format": 2},
    "a list of files": {**GOOD, "files": ["state.bin"]},
    "files without sizes": {**GOOD, "files": {"state.bin": {}}},
    "a negative size": {**GOOD, "files": {"state.bin": {**TOLD, "size": -1}}},
    "a size in words": {**GOOD, "files": {"state.bin": {**TOLD, "size": "4"}}},
    "a checksum that is none": {**GOOD, "files": {"state.bin": {**TOLD, "crc32": 7}}},
    "a file above": {**GOOD, "files": {"../precious/mine": TOLD}},
    "a file above, later": {**GOOD, "files": {"a/../../precious/mine": TOLD}},
    "a file from the root": {**GOOD, "files": {"/tmp/oarlock-evil": TOLD}},
    "a file without a name": {**GOOD, "files": {"": TOLD}},
    "a NUL": {**GOOD, "files": {"state\0.bin": TOLD}},
    "half a surrogate": {**GOOD, "files": {"\ud800": TOLD}},
    "its own manifest": {**GOOD, "files": {"manifest.json": TOLD}},
    "a file and a folder": {**GOOD, "files": {"a": TOLD, "a/b": TOLD}},
    "a name without end": {**GOOD, "files": {"n" * 300: TOLD}},
    "metrics that are none": {**GOOD, "metrics": [1]},
    "a list": [GOOD],
}
DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"\xff\xfe{",
    "too deep": b"[" * 100_000,
    "without a seal": json.dumps({"manifest": GOOD}).encode(),
    "a wrong seal": json.dumps({"crc32": "00000000", "manifest": GOOD}).encode(),
    "too large": sealed({**GOOD, "more": "x" * bucket.LARGEST_MANIFEST}),
}
HOSTILE = {**{what: sealed(said) for what, said in MANIFESTS.items()}, **DAMAGED}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch, serving(tmp_path_factory.mktemp("bucket"), patch) as store:
        yield store


@pytest.fixture
def put(store: Store, request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    run = store.folder / BUCKET / "mine" / "r1"

    def put(manifest: bytes, name: str = NAME, content: bytes = b"evil") -> None:
        for file, data in (("state.bin", content), ("manifest.json", manifest)):
            (run / name).mkdir(parents=True, exist_ok=True)
            (run / name / file).write_bytes(data)

    yield put
    run.rename(run.with_name(f"of-{request.node.name.encode().hex()[-100:]}"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkpoints folder in which a writer was killed, beside what is somebody's own."""
    folder = tmp_path / "a" / "b" / "checkpoints"
    for one in (folder / f".saving-{NAME}", folder / "step-0000000001-g1", tmp_path / "precious"):
        one.mkdir(parents=True)
        (one / "mine").write_text("mine")
    return folder


def fetch(place: Path) -> int:
    return Downloader(Download(URL, "r1", str(place), patience=60.0)).work()


def bring(to: Path, what: str) -> Any:
    spec = specs.resolve(Job(name="mine", program="x.py", storage=Storage(snapshots=URL)), to, "r1")
    return pull_snapshots.bring(spec, [what], None, to, lambda *_: None, replaces=True, is_ours=True)


@pytest.mark.parametrize("manifest", HOSTILE.values(), ids=HOSTILE)
def test_a_manifest_that_makes_no_sense_touches_nothing(
    manifest: bytes,
    put: Callable[..., None],
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(manifest)
    before = snapshot(tmp_path)
    assert fetch(place) == 0
    assert f"skipped snapshot {NAME}, which is not whole" in capsys.readouterr().out
    assert not bring(place.parent, "checkpoints").folders
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "what", ["a file above", "a file from the root", "half a surrogate", "a list of files"]
)
def test_neither_does_that_of_a_model(
    what: str, put: Callable[..., None], place: Path, tmp_path: Path
) -> None:
    put(HOSTILE[what], name="model")
    before = snapshot(tmp_path)
    assert not bring(place.parent, "model").folders
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["step-7-g3-", "step-\u0667-g3", f"step-{'7' * 200}-g3", "step--7-g3", ".saving-step-7-g3"]
)
def test_names_that_are_none_are_not_looked_at(
    name: str, put: Callable[..., None], place: Path, tmp_path: Path
) -> None:
    put(sealed(GOOD), name=name)
    before = snapshot(tmp_path)
    assert fetch(place) == 0
    assert not bring(place.parent, "checkpoints").folders
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("content", [b"", b"evi", b"evil and more", b"good"])
def test_content_that_is_not_what_was_said_is_not_kept(
    content: bytes, put: Callable[..., None], place: Path, tmp_path: Path
) -> None:
    put(sealed(GOOD), content=content)
    (place / f".saving-{NAME}" / "mine").unlink()
    (place / f".saving-{NAME}").rmdir()  # a fetch begins by clearing those away
    before = snapshot(tmp_path)
    assert fetch(place) == 0
    with pytest.raises(OarlockError) if len(content) == 4 else nullcontext():
        assert not bring(place.parent, "checkpoints").folders
    assert snapshot(tmp_path) == before


def test_links_where_a_checkpoint_goes_are_not_followed(
    put: Callable[..., None], place: Path, tmp_path: Path
) -> None:
    put(sealed(GOOD))
    (place / NAME).symlink_to(tmp_path / "precious")
    (place / ".saving-step-0000000009-g9").symlink_to(tmp_path / "precious")
    before = snapshot(tmp_path / "precious")
    assert fetch(place) == 0
    assert (place / NAME / "state.bin").read_bytes() == b"evil"
    assert not (place / NAME).is_symlink()
    assert snapshot(tmp_path / "precious") == before
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "checkpoints").symlink_to(tmp_path / "precious")
    with pytest.raises(OarlockError, match="is a link, and files are not written through links"):
        bring(tmp_path / "to", "checkpoints")
    assert snapshot(tmp_path / "precious") == before


def test_what_one_provider_is_allowed_another_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP", "AZURE_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    allowed = [url for url in ("s3://a/b", "gs://a", "az://a", "abfss://a@b.c/d") if bucket._allows_http(url)]
    assert allowed == ["az://a", "abfss://a@b.c/d"]
