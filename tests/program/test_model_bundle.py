"""What of a model's folder travels to a cluster: the versions, and nobody's credentials."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from oarlock.errors import JobError
from oarlock.models.model_versions import Version, versions
from oarlock.program import model_bundle
from tests.support.folders import CREDENTIALS, write, write_credentials

FILES = ("1/oarlock.json", "1/weights", "1/assets/vocabulary.txt")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write(tmp_path / "model", *FILES)
    return tmp_path / "model"


def packed(folder: Path, chosen: list[Version] | None = None) -> dict[str, bytes]:
    data = model_bundle.pack(folder, versions(folder) if chosen is None else chosen)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        return {name: file.read() for name, file in found.items() if file is not None}


@pytest.mark.parametrize("name", sorted(CREDENTIALS))
def test_credentials_in_a_version_are_refused(name: str, model: Path) -> None:
    write(model / "1", name, text=CREDENTIALS[name] or "canary-4711")
    with pytest.raises(JobError, match="may hold credentials"):
        packed(model)


@pytest.mark.parametrize("name", sorted(CREDENTIALS))
@pytest.mark.parametrize("link", ["1/readme.txt", "1/more"])
def test_a_link_to_a_credential_is_refused_too(link: str, name: str, model: Path) -> None:
    write_credentials(model)
    is_folder = link == "1/more" and "/" in name
    (model / link).symlink_to((model / name).parent if is_folder else model / name)
    with pytest.raises(JobError, match="may hold credentials"):
        packed(model)


@pytest.mark.parametrize("link", ["1/readme.txt", "1/assets/more", "2"])
@pytest.mark.parametrize("target", ["sec/notes", "sec"])
def test_a_link_that_leads_out_is_refused(link: str, target: str, model: Path, tmp_path: Path) -> None:
    write(tmp_path, "sec/notes", "sec/oarlock.json")
    (model / link).symlink_to(tmp_path / target)
    chosen = [Version(1, model / "1"), *([Version(2, model / "2")] if link == "2" else [])]
    with pytest.raises(JobError, match=rf"{link}: a link to .*/{target}, outside of the model's folder"):
        packed(model, chosen)


def test_versions_share_files_through_links(model: Path) -> None:
    write(model, "2/oarlock.json")
    (model / "2" / "weights").symlink_to("../1/weights")
    (model / "2" / "assets").symlink_to("../1/assets")
    (model / "2" / "circle").symlink_to("..")
    (model / "2" / "nowhere").symlink_to("/no/such/file")
    (model / "3").symlink_to("1")
    names = set(packed(model, versions(model)[1:]))
    assert {f"{number}{one[1:]}" for number in (2, 3) for one in FILES} <= names
    assert not [name for name in names if name.count("circle") > 1 or "nowhere" in name]


def test_homes_and_records_do_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "people" / "me"))
    monkeypatch.setenv("OARLOCK_HOME", str(tmp_path / "project" / "records"))
    private = ("people", "people/me", "project/records", "project/records/runs", "project/records/runs/r1")
    write(tmp_path, *(f"{folder}/1/oarlock.json" for folder in private))
    (tmp_path / "home").symlink_to("people/me")
    for name in ("/", *private, "home"):
        folder = tmp_path / name
        with pytest.raises(JobError, match="put the model into a folder of its own and serve that"):
            packed(folder, [Version(1, folder / "1")])
    write(tmp_path, "project/records/runs/r1/model/1/oarlock.json", "project/oarlock.json")
    assert set(packed(tmp_path / "project/records/runs/r1/model")) == {"1/oarlock.json"}
    assert set(packed(tmp_path / "project")) == {"1/oarlock.json"}, "without the records beside it"
