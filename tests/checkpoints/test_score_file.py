"""Scores in the folder of the checkpoints that they are about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oarlock.checkpoints import score_file
from oarlock.checkpoints.manifest import FORMAT
from oarlock.checkpoints.store import Store


def commit(store: Store, step: int, saved: float) -> str:
    draft = store.draft(step, 1)
    draft.mkdir(parents=True)
    manifest: dict[str, Any] = {"format": FORMAT, "run": "r", "generation": 1, "step": step, "saved": saved}
    return store.commit(draft, {**manifest, "metrics": {}, "files": {}}).name


def test_a_score_belongs_to_one_checkpoint_and_goes_with_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = commit(store, 1, 100.0), commit(store, 2, 200.0)
    score_file.set_followed(tmp_path, True)
    score_file.add(tmp_path, first, {"loss": 0.5})
    score_file.add(tmp_path, first, {"accuracy": 0.25})
    scores = score_file.read(tmp_path)
    assert scores.is_followed
    assert scores.names(store.checkpoints()) == [first]
    assert scores.of(store.checkpoints()[0]) == {"loss": 0.5, "accuracy": 0.25}
    commit(store, 1, 300.0)  # another run, which saves under the same name
    assert scores.names(store.checkpoints()) == []
    store.delete(store.checkpoints()[0])
    score_file.add(tmp_path, second, {"loss": 0.125})
    assert set(score_file.read(tmp_path).scored) == {second}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"scored": []}', '{"scored": {"a": 1}}', '{"scored": {"a": {"saved": "x"}}}']
)
def test_a_file_that_makes_no_sense_holds_no_scores(tmp_path: Path, text: str) -> None:
    (tmp_path / score_file.FILE_NAME).write_text(text)
    assert score_file.read(tmp_path) == score_file.Scores()
