"""Snapshots that are fetched to be scored: the newest, one of a step, or all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.agent.score.fetched_snapshots import fetch
from oarlock.agent.score.score_error import ScoreError
from oarlock.checkpoints.store import Store as Checkpoints
from oarlock.engines.local import local_engine
from tests.support.gangs import Gang
from tests.support.stores import BUCKET, SAVES, complete, needs_store, serving
from tests.support.waiting import eventually

pytestmark = needs_store
URL = f"s3://{BUCKET}/mine"


def spec_of(run: str, url: str = URL) -> Spec:
    return Spec(run, "", "", Program("program", "train.py"), {"worker": 1}, {}, snapshots=url)


def steps_in(folder: Path) -> list[int]:
    return [one.step for one in Checkpoints(folder).checkpoints()]


def test_the_newest_one_of_a_step_or_all(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "bucket", monkeypatch) as store:
        gang = Gang(
            tmp_path / "job",
            SAVES,
            roles={"worker": 1},
            args=["100000", "1000", "0.1"],
            storage={"snapshots": URL},
        )
        eventually(lambda: len(complete(store, gang.run.name)) > 2, "three snapshots")
        local_engine.stop(gang.run)
        gang.end()
        names = [name for name in complete(store, gang.run.name) if name.startswith("step-")]
        kept = sorted(int(name.split("-")[1]) for name in names)
        said: list[str] = []
        for wanted, expected in (
            ("newest", kept[-1:]),
            (str(kept[0]), kept[:1]),
            ("all", kept),
            ("1000000", []),
        ):
            fetch(spec_of(gang.run.name), tmp_path / wanted, wanted, said.append)
            assert steps_in(tmp_path / wanted) == expected, said
        assert any("fetched snapshot" in text and "resuming" not in text for text in said)


def test_a_store_that_is_away_is_said(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oarlock.agent.score.fetched_snapshots._PATIENCE", 0.5)
    with serving(tmp_path / "bucket", monkeypatch) as store:
        store.kill()
        with pytest.raises(ScoreError, match=f"the snapshots in {URL} cannot be read: ") as problem:
            fetch(spec_of("gone"), tmp_path / "here", "newest", lambda _: None)
        assert "step 0" not in str(problem.value)
