"""Which versions are served, and when something counts as another version."""

from __future__ import annotations

import json
from pathlib import Path

from oarlock.serving.fleet.version_choice import candidates, missing
from oarlock.serving.settings import Settings
from tests.support.model_servers import MANIFEST, publish


def numbers(settings: Settings, folder: Path) -> list[list[int]]:
    return [[one.number for one in chosen.versions] for chosen in candidates(settings, folder)]


def settings(folder: Path, **changes: object) -> Settings:
    return Settings("sums", str(folder), **changes)  # type: ignore[arg-type]


def test_the_newest_is_preferred_and_older_ones_are_left(tmp_path: Path) -> None:
    for factor in (1, 2, 3):
        publish(tmp_path, factor)
    assert numbers(settings(tmp_path), tmp_path) == [[3], [2], [1]]
    assert numbers(settings(tmp_path, versions="2"), tmp_path) == [[2]]
    assert numbers(settings(tmp_path, weights={1: 1, 3: 2}), tmp_path) == [[1, 3]]
    assert numbers(settings(tmp_path, weights={1: 1, 4: 2}), tmp_path) == []


def test_the_best_is_that_of_the_first_score_that_all_have(tmp_path: Path) -> None:
    publish(tmp_path, 1, scores={"loss": 0.3, "accuracy": 0.7})
    publish(tmp_path, 2, scores={"loss": 0.1, "accuracy": 0.6})
    publish(tmp_path, 3, scores={"accuracy": 0.5, "loss": 0.2})
    assert numbers(settings(tmp_path, versions="best"), tmp_path) == [[1], [2], [3]]  # by accuracy
    publish(tmp_path, 4, scores={"loss": 0.05})
    assert numbers(settings(tmp_path, versions="best"), tmp_path) == [[4], [2], [3], [1]]
    publish(tmp_path, 5)
    assert numbers(settings(tmp_path, versions="best"), tmp_path)[0] == [5]
    assert numbers(settings(tmp_path / "nothing", versions="best"), tmp_path / "nothing") == []


def test_what_is_written_again_or_set_otherwise_is_another_version(tmp_path: Path) -> None:
    publish(tmp_path / "models", 1)
    own = tmp_path / "predict.py"
    own.write_text("one")
    plain = settings(tmp_path / "models", predict=str(own))

    def key(one: Settings = plain) -> object:
        return candidates(one, tmp_path / "models")[0].key

    first = key()
    assert key() == first
    assert key(settings(tmp_path / "models", predict=str(own), replicas=4, port=1)) == first
    assert key(settings(tmp_path / "models", predict=str(own), max_rows=4)) != first
    own.unlink()
    own.write_text("another")
    second = key()
    assert second != first
    file = tmp_path / "models" / "1" / "oarlock.json"
    file.unlink()
    file.write_text(json.dumps({**MANIFEST, "step": 7}))
    assert key() != second


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert missing(settings(tmp_path), tmp_path) == (
        f"{tmp_path} holds no model: neither a SavedModel nor numbered versions"
    )
    publish(tmp_path, 1)
    assert missing(settings(tmp_path, versions="7"), tmp_path) == f"{tmp_path} has no version 7; it has 1"
