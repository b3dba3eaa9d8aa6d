from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock import runs
from oarlock.errors import OarlockError, UnknownRun


def fill(draft: runs.RunFolder) -> None:
    (draft.path / "job.yaml").write_text("name: x\n")
    (draft.path / "events.jsonl").write_text('{"t":1,"kind":"run","job":"x","tasks":["worker-0"]}\n')


def test_a_new_run_has_a_name_of_its_own(home: Path) -> None:
    one, two = runs.create("mnist", fill), runs.create("mnist", fill)
    assert one.name != two.name
    assert one.name.startswith("mnist-")
    assert len(one.name) == len("mnist-abcd")


def test_a_run_that_could_not_be_filled_is_never_seen(home: Path) -> None:
    def fail(draft: runs.RunFolder) -> None:
        fill(draft)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        runs.create("mnist", fail)
    assert runs.all_runs() == []
    assert list((home / "runs").iterdir()) == []


def test_a_taken_name_is_refused(home: Path) -> None:
    runs.create("x", fill, name="mine")
    with pytest.raises(OarlockError, match="there is a run called mine"):
        runs.create("x", fill, name="mine")


def test_no_name_means_the_latest(home: Path) -> None:
    old, new = runs.create("x", fill), runs.create("x", fill)
    os.utime(old.path / "job.yaml", (1, 1))
    assert runs.find(None) == new
    assert [run.name for run in runs.all_runs()] == [new.name, old.name]


def test_the_beginning_of_a_name_is_enough_if_it_is_clear(home: Path) -> None:
    run = runs.create("x", fill, name="mnist-abcd")
    runs.create("x", fill, name="other-abcd")
    assert runs.find("mn") == run
    runs.create("x", fill, name="mnist-efgh")
    with pytest.raises(UnknownRun, match="could be"):
        runs.find("mn")


def test_an_unknown_name_says_where_to_look(home: Path) -> None:
    with pytest.raises(UnknownRun, match="no runs yet"):
        runs.find(None)
    runs.create("x", fill)
    with pytest.raises(UnknownRun, match="oarlock ps"):
        runs.find("nothing")


def test_a_run_nobody_holds_that_did_not_end_is_lost(home: Path) -> None:
    run = runs.create("x", fill)
    assert run.state().state == "lost"
    held = run.hold()
    assert run.state().state == "pending"
    os.close(held)
    assert run.state().state == "lost"


def test_a_held_run_cannot_be_held_twice(home: Path) -> None:
    run = runs.create("x", fill)
    held = run.hold()
    with pytest.raises(OarlockError, match="is running"):
        run.hold(seconds=0.05)
    os.close(held)


def test_somebodys_look_does_not_refuse_the_hold(home: Path) -> None:
    run = runs.create("x", fill)
    os.close(run.hold())
    with (run.path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert run.is_held() is False
    os.close(run.hold())


def test_a_deleted_run_is_gone(home: Path) -> None:
    run = runs.create("x", fill)
    run.delete()
    assert runs.all_runs() == []
    assert list((home / "runs").iterdir()) == []


def test_runs_that_are_deleted_while_they_are_listed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One before it is looked at, one after."""
    for name in ("early", "late", "other"):
        runs.create("x", fill, name=name)
    listed = list((home / "runs").iterdir())
    runs.RunFolder(home / "runs" / "early").delete()

    def listing(_: Path) -> Iterator[Path]:
        for path in listed:
            yield path
            if path.name == "late":
                runs.RunFolder(path).delete()

    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", listing)
        assert {run.name for run in runs.all_runs()} - {"late"} == {"other"}
