"""Which checkpoints `oarlock evaluate` scores, here and in a pod."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from oarlock.agent.score.asked_checkpoints import choose
from oarlock.agent.score.score_error import ScoreError
from oarlock.checkpoints.manifest import Manifest
from oarlock.checkpoints.store import Store, checksum


def save(folder: Path, step: int, generation: int = 1) -> None:
    store = Store(folder)
    draft = store.draft(step, generation)
    draft.mkdir(parents=True)
    (draft / "state.bin").write_bytes(b"%d" % step)
    size, crc32 = checksum(draft / "state.bin")
    manifest: Manifest = {
        "format": 1,
        "run": "r",
        "generation": generation,
        "step": step,
        "saved": time.time(),
        "files": {"state.bin": {"size": size, "crc32": crc32}},
    }
    store.commit(draft, manifest)


def test_the_newest_one_of_a_step_or_all(tmp_path: Path) -> None:
    for step, generation in ((10, 1), (20, 1), (20, 2), (30, 2)):
        save(tmp_path, step, generation)
    assert [one.step for one in choose("r", tmp_path, None, False)] == [30]
    assert [(one.step, one.generation) for one in choose("r", tmp_path, 20, False)] == [(20, 2)]
    every = choose("r", tmp_path, None, True)
    assert [(one.step, one.generation) for one in every] == [(10, 1), (20, 2), (30, 2)]


def test_one_that_is_missing_or_damaged_is_said(tmp_path: Path) -> None:
    with pytest.raises(ScoreError, match="r has no checkpoints yet"):
        choose("r", tmp_path / "nowhere", None, False)
    save(tmp_path, 10)
    save(tmp_path, 20)
    with pytest.raises(ScoreError, match="r has no checkpoint of step 15; it has 10, 20"):
        choose("r", tmp_path, 15, False)
    newest = choose("r", tmp_path, None, False)[0]
    (newest.path / "state.bin").write_bytes(b"99")
    with pytest.raises(ScoreError, match=f"{newest.name} of r is not whole: "):
        choose("r", tmp_path, None, False)
    assert [one.step for one in choose("r", tmp_path, 10, False)] == [10]
