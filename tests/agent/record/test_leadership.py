"""Of all who could lead a run only the youngest does, and it lets the one before it finish saving."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from oarlock.agent.pod import main as pod_agent
from oarlock.agent.record.leadership import Leadership
from oarlock.system import polling
from tests.support.waiting import eventually


class Waits:
    """The `time` module as whatever polls sees it. Tells whether a wait has begun."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.begun = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.begun.set()
        time.sleep(seconds)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    found = Waits()
    monkeypatch.setattr(polling, "time", found)
    return found


def pod(tmp_path: Path, name: str) -> Leadership:
    """Its agent's, at every start of its container."""
    own, folder = tmp_path / name, tmp_path / "claim"
    for made in (own, folder):
        made.mkdir(exist_ok=True)
    return Leadership(folder, own)


def test_the_younger_one_leads(tmp_path: Path) -> None:
    old, new = pod(tmp_path, "old"), pod(tmp_path, "new")
    assert old.take(10)
    assert not old.is_over
    assert new.take(10)
    assert old.is_over
    assert not new.is_over


def test_a_container_that_starts_again_leads_on_without_waiting_for_itself(
    tmp_path: Path, waits: Waits
) -> None:
    first = pod(tmp_path, "only")
    assert first.take(10)
    first.leave(60)
    again = pod(tmp_path, "only")
    assert again.take(60)
    assert not waits.begun.is_set()
    assert not again.is_over


def test_a_container_that_starts_again_in_a_pod_that_was_replaced_does_not_lead(tmp_path: Path) -> None:
    assert pod(tmp_path, "old").take(10)
    new = pod(tmp_path, "new")
    assert new.take(10)
    assert not pod(tmp_path, "old").take(10)
    assert not new.is_over


def test_who_is_saving_is_waited_for_until_it_has_left(tmp_path: Path, waits: Waits) -> None:
    old, new = pod(tmp_path, "old"), pod(tmp_path, "new")
    assert old.take(10)
    old.leave(60)
    waiting = threading.Thread(target=new.take, args=(60,))
    waiting.start()
    assert waits.begun.wait(300)
    assert waiting.is_alive()
    assert not old.is_over
    old.leave(0)
    waiting.join(300)
    assert not waiting.is_alive()
    assert old.is_over


@pytest.mark.parametrize(("patience", "told"), [(0.2, 60.0), (60.0, 0.2)], ids=["own", "told"])
def test_nobody_is_waited_for_longer_than_that(tmp_path: Path, patience: float, told: float) -> None:
    """It may have died meanwhile, and clocks differ."""
    old, new = pod(tmp_path, "old"), pod(tmp_path, "new")
    assert old.take(10)
    old.leave(told)
    waiting = threading.Thread(target=new.take, args=(patience,))
    waiting.start()
    eventually(lambda: old.is_over, "another leader")
    waiting.join(300)


def test_one_whose_time_is_over_cannot_make_the_other_wait(tmp_path: Path) -> None:
    old, new = pod(tmp_path, "old"), pod(tmp_path, "new")
    assert old.take(10)
    assert new.take(10)
    old.leave(60)
    assert not new.is_over


def test_a_word_that_cannot_be_read_ends_nobody(tmp_path: Path) -> None:
    only = pod(tmp_path, "only")
    assert only.take(10)
    for torn in ("", "{", "[]", '"x"'):
        (tmp_path / "claim" / "leader").write_text(torn)
        assert not only.is_over


def test_a_pod_is_the_same_machine_when_its_container_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a worker that comes back with a lost node would, once refused, return as another one."""
    monkeypatch.setattr(pod_agent, "WORK", tmp_path)
    assert pod_agent._machine() == pod_agent._machine()


def test_a_pod_whose_agent_fails_says_so_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_agent, "_LAST_WORDS", tmp_path / "last")
    assert pod_agent._guarded(lambda: 1 // 0) == 1
    assert (tmp_path / "last").read_text().startswith("the agent failed: ZeroDivisionError")
