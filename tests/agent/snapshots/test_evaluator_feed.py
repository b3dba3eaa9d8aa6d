"""An evaluator's machine without the volume: its checkpoints come from a real leading agent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.wire import WireError
from oarlock.agent.snapshots import evaluator_feed
from oarlock.agent.snapshots.evaluator_feed import EvaluatorFeed
from oarlock.agent.snapshots.transfer import Getting
from oarlock.checkpoints import score_file
from oarlock.checkpoints.store import Store
from tests.support.members import Leader, leading
from tests.support.transfers import save, whole
from tests.support.waiting import eventually


class Fed:
    """A feed of the checkpoints that the leader has."""

    def __init__(self, leader: Leader, folder: Path) -> None:
        self.theirs = Store(leader.folder / "checkpoints")
        self.ours = Store(folder)
        self.getting = Getting(Loop(), leader.address, leader.token, str(folder), patience=20)
        self.feed = EvaluatorFeed(self.getting, str(folder))

    def until(self, *steps: int) -> None:
        names = [f"step-{step:010d}-g1" for step in steps]
        eventually(lambda: whole(self.ours) == names, f"{names}", evidence=lambda: str(whole(self.ours)))

    def score(self, step: int) -> None:
        score_file.add(self.theirs.folder, f"step-{step:010d}-g1", {"loss": 1.0})


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fed]:
    monkeypatch.setattr(evaluator_feed, "_LOOK", 0.02)
    with leading(tmp_path / "leader", machines=2) as leader:
        fed = Fed(leader, tmp_path / "ours")
        yield fed
        fed.feed.close()


def test_one_that_follows_gets_all_in_order_and_two_at_a_time(fed: Fed) -> None:
    fed.feed.is_followed = True
    for step in (10, 20, 30, 40):
        save(fed.theirs, step)
    fed.feed.start()
    fed.until(10, 20)
    fed.score(10)
    fed.until(20, 30)
    fed.theirs.delete(fed.theirs.checkpoints()[1])  # by retention: the evaluator may be at it, but not again
    assert not fed.feed.is_complete()
    fed.until(30, 40)
    eventually(fed.feed.is_complete, "the last one")
    fed.score(30)
    fed.score(40)
    fed.until(40)  # the newest stays for a State that is created now


def test_one_that_does_not_follow_has_the_newest(fed: Fed) -> None:
    for step in (10, 20):
        save(fed.theirs, step)
    fed.feed.start()
    fed.until(20)
    save(fed.theirs, 30)
    fed.until(30)
    eventually(fed.feed.is_complete, "an answer")


def test_a_checkpoint_that_is_deleted_during_its_transfer_leaves_nothing(fed: Fed) -> None:
    """The leader says which files follow and then finds none of them: the connection ends in the middle."""
    name = save(fed.theirs, 10, bytes(64 << 20))
    (fed.theirs.folder / name / "state").unlink()
    with pytest.raises((OSError, ValueError, WireError)):
        fed.getting.receive(name)
    assert list(fed.ours.folder.iterdir()) == []
    fed.theirs.delete(fed.theirs.checkpoints()[0])
    assert not fed.getting.receive(name)
    assert list(fed.ours.folder.iterdir()) == []


def test_two_that_want_the_same_one_fetch_it_once(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    name, asked = save(fed.theirs, 10), []
    ask = Getting._ask

    def count(self: Getting, *words: Any) -> bool:
        asked.append(words)
        return ask(self, *words)

    monkeypatch.setattr(Getting, "_ask", count)
    threads = [threading.Thread(target=fed.getting.receive, args=(name,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert (whole(fed.ours), len(asked)) == ([name], 1)
