"""A run whose machines come from elsewhere: it goes on until there is room for those that are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.net import control
from tests.support.members import Leader, Member, attend, leading


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    with leading(tmp_path, machines=2) as found:
        yield found


def scale(leader: Leader, workers: Any) -> dict[str, Any]:
    return control.ask(leader.folder, {"ask": "scale", "workers": workers})


def clear(member: Member) -> None:
    """What a real agent does: it ends its tasks and says so."""
    generation = member.until(
        lambda one: next((w["generation"] for w in one.wishes if w["do"] == "clear" and w["generation"]), 0),
        "wish to clear",
    )
    member.send({"status": member.status(generation=generation, cleared=generation)})


def test_the_gang_grows_when_the_new_machine_is_there(leader: Leader) -> None:
    one = Member(leader, "machine-1")
    assert one.until_run()["generation"] == 1
    assert scale(leader, 3) == {"ok": True, "tasks": 3, "generation": 1}
    assert leader.state().workers == 3
    two = Member(leader, "machine-2")
    two.until(lambda member: member.wishes, "seat")
    clear(one)
    clear(two)
    assert attend([one, two], lambda: two.wishes[-1]["do"] == "run" and two.wishes[-1]["generation"] == 2)
    wish = two.wishes[-1]
    assert wish["places"] == {"machine-0": ["worker-0"], "machine-1": ["worker-1"], "machine-2": ["worker-2"]}
    assert leader.state().restarts == 0
    # Nobody was disturbed before there was room for all three.
    restarts = [event for event in leader.events() if event["kind"] == "restart"]
    assert [event["reason"] for event in restarts] == ["more machines have joined"]


def test_what_never_formed_is_taken_back_and_nobody_notices(leader: Leader) -> None:
    one = Member(leader, "machine-1")
    assert one.until_run()["generation"] == 1
    two = Member(leader, "machine-2")  # one of two more that would be needed
    two.until(lambda member: member.wishes, "seat")
    assert scale(leader, 4) == {"ok": True, "tasks": 4, "generation": 1}
    assert scale(leader, 2) == {"ok": True, "tasks": 2, "generation": 1}
    assert leader.state().workers == 2
    assert scale(leader, 1)["generation"] == 2, "less than there is takes effect"
    reasons = [event["reason"] for event in leader.events() if event["kind"] == "restart"]
    assert reasons in ([], ["scaled to 1 worker"])


def test_a_gang_that_still_waits_for_a_machine_can_do_without_it(leader: Leader) -> None:
    leader.until(lambda: any(event["kind"] == "ready" for event in leader.events()), "ready zygote")
    assert scale(leader, 1)["ok"]
    leader.until(lambda: leader.state().state == "running", "gang of one")
    assert list(leader.state().tasks) == ["worker-0"]


def test_nonsense_is_refused(leader: Leader) -> None:
    refused: list[Any] = [None, True, "3", 2.0, [], -1, 0, 10**9]
    for workers in refused:
        answer = scale(leader, workers)
        assert answer["ok"] is False, workers
        assert answer["why"]
