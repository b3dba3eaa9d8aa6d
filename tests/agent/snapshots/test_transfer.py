"""A machine that does not see the leader's folder fetches the checkpoint its tasks go on from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.checkpoints.store import Store
from tests.support.members import Leader, leading
from tests.support.transfers import get, save, whole


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    with leading(tmp_path / "leader", machines=2) as found:
        yield found


@pytest.fixture
def theirs(leader: Leader) -> Store:
    return Store(leader.folder / "checkpoints")


@pytest.fixture
def ours(tmp_path: Path) -> Store:
    return Store(tmp_path / "ours")


def test_the_newest_is_fetched_and_others_are_forgotten(leader: Leader, theirs: Store, ours: Store) -> None:
    save(ours, 5)
    names = [save(theirs, 30), save(theirs, 20)]
    assert get(leader, ours, names) is None
    assert whole(ours) == [names[0]]


def test_one_that_is_torn_at_the_leader_is_passed_over(leader: Leader, theirs: Store, ours: Store) -> None:
    names = [save(theirs, 30), save(theirs, 20)]
    (theirs.folder / names[0] / "state").write_bytes(b"other")
    assert get(leader, ours, names) is None
    assert whole(ours) == [names[1]]


def test_one_that_is_here_already_is_replaced(leader: Leader, theirs: Store, ours: Store) -> None:
    """Of the newest the leader has only a torn one; the one before it is here, perhaps torn."""
    names = [save(theirs, 30), save(theirs, 20)]
    (theirs.folder / names[0] / "manifest.json").unlink()
    save(ours, 20)
    (ours.folder / names[1] / "state").write_bytes(b"other")
    assert get(leader, ours, names) is None
    assert whole(ours) == [names[1]]


def test_what_is_gone_everywhere_is_for_the_leader_to_say(leader: Leader, ours: Store) -> None:
    assert get(leader, ours, ["step-0000000020-g1"]) is None
    assert whole(ours) == []


def test_a_name_that_leads_out_of_the_folder_is_none(leader: Leader, ours: Store, tmp_path: Path) -> None:
    (ours.folder / ".saving-fetched-x").mkdir(parents=True)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    assert get(leader, ours, ["x/../../precious"]) is None
    assert (precious / "file").exists()
