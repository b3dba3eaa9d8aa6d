"""What of a model folder is complete, and when: while a run trains, and once it has succeeded."""

from __future__ import annotations

from pathlib import Path

from oarlock.agent.snapshots.upload_items import Item, UploadItems


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(items: list[Item]) -> list[str]:
    return [item.name for item in items]


def test_only_what_was_exported_is_complete_while_the_run_trains(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write(model / "1" / "oarlock.json", "{}")
    write(model / "1" / "deep" / "weights")
    write(model / "2" / "saved_model.pb")  # the program itself writes it, perhaps at this moment
    write(model / ".draft-abc" / "oarlock.json")
    write(model / "notes.txt")
    items = UploadItems("run", str(tmp_path / "checkpoints"), str(model))
    [first] = items.versions()
    assert (first.name, sorted(first.files)) == ("model/1", ["deep/weights", "oarlock.json"])
    assert names(items.versions(are_all_written=True)) == ["model/2", "model/1"]
    rest = items.rest_of_model()
    assert rest is not None
    assert (rest.name, list(rest.files)) == ("model", ["notes.txt"])


def test_a_version_is_read_once_unless_it_is_replaced(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write(model / "1" / "oarlock.json", "{}")
    items = UploadItems("run", str(tmp_path / "checkpoints"), str(model))
    [first] = items.versions()
    assert items.versions() == [first]
    (model / "1").rename(tmp_path / "aside")
    assert items.versions() == []
    write(model / "1" / "oarlock.json", "{ }")
    [other] = items.versions()
    assert other.key != first.key


def test_names_that_belong_to_snapshots_are_refused_with_a_line(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write(model / "1" / "oarlock.json", "{}")
    write(model / "1" / "claim")
    items = UploadItems("run", str(tmp_path / "checkpoints"), str(model))
    assert items.versions() == []
    assert items.versions() == []
    assert items.refused == ["model/1 is not uploaded: it has a claim of its own"]


def test_a_model_in_a_bucket_needs_no_upload(tmp_path: Path) -> None:
    items = UploadItems("run", str(tmp_path / "checkpoints"), "s3://bucket/model")
    assert items.versions(are_all_written=True) == []
    assert items.rest_of_model() is None
