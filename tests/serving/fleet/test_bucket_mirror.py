"""A model in a bucket: served, followed, and missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.checkpoints.bucket import CLAIM, opened
from oarlock.checkpoints.manifest import FILE_NAME
from oarlock.serving.fleet.bucket_mirror import listed
from oarlock.serving.settings import Settings
from tests.support.model_servers import model_server, publish
from tests.support.stores import BUCKET, needs_store, serving
from tests.support.waiting import eventually

pytestmark = needs_store


def test_versions_in_a_bucket_are_served_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "store", monkeypatch) as store:
        models = store.folder / BUCKET / "models"
        publish(models, 1)
        with model_server(tmp_path, tmp_path, source=f"s3://{BUCKET}/models") as server:
            assert server.ask(1, 2)[0] == 3
            publish(models, 2)
            server.until_factor(2)
            store.kill()
            server.until_said(f"s3://{BUCKET}/models: ")
            assert server.ask(1, 2)[0] == 6
            store.start()
            publish(models, 3)
            server.until_factor(3)
            assert store.key not in server.said
            assert server.stop() == 0
        eventually(lambda: not list(tmp_path.glob(".models-*")), "no copy left")


def test_a_bucket_that_cannot_be_read_is_the_end_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "store", monkeypatch) as store:
        with model_server(tmp_path, tmp_path, source="s3://nowhere/models") as server:
            assert server.process.wait(300) == 1
            assert "s3://nowhere/models: NoSuchBucket" in server.said
            assert store.key not in server.said
            assert "Traceback" not in server.said
        with model_server(tmp_path, tmp_path, source=f"s3://{BUCKET}/empty") as server:
            assert server.process.wait(300) == 1
            assert f"s3://{BUCKET}/empty holds no model" in server.said


def test_a_version_that_a_run_still_uploads_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "store", monkeypatch) as store:
        models = store.folder / BUCKET / "models"
        publish(models, 1)
        publish(models, 2)
        settings = Settings("model", f"s3://{BUCKET}/models")
        (models / "2" / CLAIM).write_text("me")
        assert list(listed(opened(settings.source, 60.0), settings)) == ["1"]
        (models / "2" / FILE_NAME).write_text("{}")
        assert list(listed(opened(settings.source, 60.0), settings)) == ["2"]
