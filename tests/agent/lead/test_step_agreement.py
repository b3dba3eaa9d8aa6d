"""Agreeing on a step: who is asked, what is decided, what is called off, and what a cut does to it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from oarlock.agent.lead.step_agreement import Meeting, StepAgreement
from oarlock.agent.net import control
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol import messages
from oarlock.agent.protocol.gates import GateMessage, MeetAt, Whereabouts
from oarlock.agent.protocol.host_status import Status
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.wire import WireError
from tests.support.members import Leader, Member, leading


class Deadlines:
    """Stands in for the loop: what is to happen later happens when the test says so."""

    def __init__(self) -> None:
        self.names: dict[str, Callable[[], None]] = {}

    def after(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self.names[name] = action

    def cancel(self, name: str) -> None:
        self.names.pop(name, None)

    def expects(self, name: str) -> bool:
        return name in self.names

    def passes(self, name: str) -> None:
        self.names.pop(name)()


class Table:
    """The agreement of three trainers, and what the hosts hear."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.told: list[str] = []
        self.agreement = StepAgreement(cast(Loop, self.deadlines), self._tell)
        self.agreement.form(["worker-0", "worker-1", "worker-2"])
        for index in range(3):
            self.hear(index)

    def _tell(self, message: GateMessage) -> None:
        self.told.append(message.line)

    def hear(
        self, index: int, meeting: int = 0, step: int | None = None, asks: int = 0, loop: int = 1
    ) -> None:
        name = f"worker-{index}"
        self.agreement.hear([name], {name: Whereabouts(loop, asks, meeting, step)}, [])

    def ended(self, index: int) -> None:
        self.agreement.hear([f"worker-{index}"], {}, [f"worker-{index}"])


@pytest.fixture
def table() -> Table:
    return Table()


def test_the_step_is_one_that_nobody_can_have_passed() -> None:
    meeting = Meeting(1, "save", ["a", "b"])
    meeting.hear("a", Whereabouts(1, meeting=1, step=40))
    assert meeting.awaited == {"b"}
    meeting.hear("b", Whereabouts(1, meeting=1, step=43))
    meeting.conclude()
    assert meeting.message() == MeetAt(meeting=1, purpose="save", step=45)


def test_a_save_is_decided_when_all_have_answered(table: Table) -> None:
    table.hear(0, asks=1)
    table.hear(0, meeting=1, step=5, asks=1)
    table.hear(2, meeting=1, step=6)
    assert table.told == ["where 1"]
    table.hear(1, meeting=1, step=5)
    assert table.told == ["where 1", "meet 1 save 8"]
    assert not table.deadlines.names


def test_nobody_is_asked_before_all_have_a_gate() -> None:
    table = Table()
    table.agreement.form(["worker-0", "worker-1"])
    table.hear(0, asks=1)
    assert not table.agreement.is_possible
    assert table.told == []
    table.hear(1)
    assert table.told == ["where 1"]


def test_who_does_not_answer_holds_the_others_up_for_a_while_only(table: Table) -> None:
    table.hear(0, asks=1)
    table.hear(0, meeting=1, step=5, asks=1)
    table.deadlines.passes("meeting")
    assert table.told == ["where 1", "carry-on 1"]
    table.hear(0, meeting=1, step=5, asks=2)
    assert table.told[2:] == ["where 2"]


def test_asked_for_again_while_it_is_open_it_is_still_one(table: Table) -> None:
    table.hear(0, asks=1)
    table.hear(0, asks=2)
    for index in range(3):
        table.hear(index, meeting=1, step=5, asks=2 if index == 0 else 0)
    assert table.told == ["where 1", "meet 1 save 7"]


def test_who_is_to_halt_does_not_save_first(table: Table) -> None:
    """They save when they halt."""
    table.hear(0, asks=1)
    table.agreement.halt()
    assert not table.deadlines.names
    for index in range(3):
        table.hear(index, meeting=1, step=5, asks=1)
    assert table.told == ["where 1", "meet 1 halt 7"]
    assert not table.agreement.is_settled
    for index in range(3):
        table.ended(index)
    assert table.agreement.is_settled


def test_a_save_that_is_decided_does_not_keep_them_from_halting(table: Table) -> None:
    table.hear(0, asks=1)
    for index in range(3):
        table.hear(index, meeting=1, step=5, asks=1)
    table.agreement.halt()
    for index in range(3):
        table.hear(index, meeting=2, step=5, asks=1)
    assert table.told == ["where 1", "meet 1 save 7", "where 2", "meet 2 halt 7"]


@pytest.mark.parametrize("other", [{"step": None}, {"step": 0, "loop": 2}])
def test_who_is_not_in_the_same_loop_meets_nobody(table: Table, other: dict[str, Any]) -> None:
    table.hear(0, asks=1)
    table.hear(0, meeting=1, step=99, asks=1)
    table.hear(1, meeting=1, step=99)
    table.hear(2, meeting=1, **other)
    assert table.told == ["where 1", "carry-on 1"]


def test_who_is_to_halt_is_asked_again_until_all_are_in_the_same_loop(table: Table) -> None:
    table.agreement.halt()
    table.hear(0, meeting=1, step=None)
    table.hear(1, meeting=1, step=99)
    table.hear(2, meeting=1, step=99)
    assert table.told == ["where 1", "carry-on 1"]
    table.deadlines.passes("meeting again")
    for index in range(3):
        table.hear(index, meeting=2, step=0, loop=2)
    assert table.told[2:] == ["where 2", "meet 2 halt 2"]


def test_nobody_is_waited_for_who_is_in_no_loop(table: Table) -> None:
    table.agreement.halt()
    table.hear(0, meeting=1, step=None)
    table.hear(1, meeting=1, step=None)
    assert not table.agreement.is_settled
    table.ended(2)
    assert table.agreement.is_settled
    assert not table.deadlines.names


def test_a_loop_may_end_before_the_step_that_was_agreed_on(table: Table) -> None:
    table.agreement.halt()
    for index in range(3):
        table.hear(index, meeting=1, step=99)
    for index in range(3):
        assert not table.agreement.is_settled
        table.hear(index, meeting=1, step=None)
    assert table.agreement.is_settled


def test_when_it_is_given_up_nobody_is_held_back(table: Table) -> None:
    table.agreement.halt()
    table.hear(0, meeting=1, step=3)
    table.agreement.close()
    assert table.told == ["where 1", "carry-on 1"]
    assert not table.deadlines.names


NONSENSE = [
    7,
    [],
    {"worker-1": None},
    {"worker-1": {}},
    {"worker-1": {"loop": 1, "asks": 0, "meeting": 0}},
    {"worker-1": {"loop": 1, "asks": 0, "meeting": True, "step": 3}},
    {"worker-1": {"loop": 1, "asks": -1, "meeting": 0, "step": 3}},
    {"worker-1": {"loop": 1, "asks": 0, "meeting": 0, "step": "3"}},
    {"worker-1": {"loop": 1, "asks": 0, "meeting": 0, "step": 10**400}},
]


@pytest.mark.parametrize("gates", NONSENSE)
def test_nonsense_of_an_agent_is_refused(gates: Any) -> None:
    with pytest.raises(WireError):
        Status.from_data(
            {
                "generation": 1,
                "cleared": 0,
                "ready": True,
                "ports": [],
                "slots": {},
                "tasks": [],
                "gates": gates,
            }
        )


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "gate"},
        {"kind": "ask"},
        {"kind": "at", "meeting": 1},
        {"kind": "at", "meeting": "1", "loop": 1, "step": 1},
        {"kind": "at", "meeting": 1, "loop": 1, "step": 1.5},
        {"kind": "at", "meeting": 1, "loop": 1, "step": 2**60},
    ],
)
def test_nonsense_of_a_task_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        messages.task_event(json.dumps(event).encode(), "worker-0", 1.0)


# Over the wire

GATED = """
import os, time
from oarlock.training.steps.gate import Gate
gate = Gate(0)
for step in range(10**9):
    if "halt" in gate.enter(step):
        os._exit(143)
    time.sleep(0.01)
"""


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    """It hosts worker-0, which has a gate."""
    with leading(tmp_path, machines=2, program=GATED, grace=600.0) as found:
        yield found


def tell(member: Member, meeting: int = 0, step: int | None = None, asks: int = 0, **more: Any) -> None:
    """What an agent says that hosts worker-1, with a gate."""
    gates = {"worker-1": asdict(Whereabouts(1, asks, meeting, step))}
    alive = [asdict(Outcome("worker-1"))]
    member.send({"status": member.status(**{"generation": 1, "tasks": alive, "gates": gates, **more})})


def until_told(member: Member, do: str) -> dict[str, Any]:
    found: dict[str, Any] = member.until(
        lambda one: next((wish for wish in one.wishes if wish["do"] == do), None), do
    )
    return found


def ask_for_a_save(member: Member) -> dict[str, Any]:
    """Said once: it is remembered until the leader's own task has its gate."""
    tell(member, asks=1)
    return until_told(member, "where")


def come_back(member: Member) -> Member:
    member.close()
    again = Member(member.leader, member.name, uid=member.hello["uid"])
    again.until(lambda one: one.wishes, "seat")
    return again


def test_after_a_cut_an_agent_hears_again_what_is_asked_and_what_was_decided(leader: Leader) -> None:
    one = Member(leader, "machine-1")
    one.until_run()
    asked = ask_for_a_save(one)
    assert asked == {"do": "where", "meeting": 1, "generation": 1}
    one = come_back(one)
    assert until_told(one, "where") == asked
    tell(one, meeting=1, step=10**6, asks=1)
    decided = until_told(one, "meet")
    assert (decided["purpose"], decided["step"]) == ("save", 10**6 + 2)
    one = come_back(one)
    assert until_told(one, "meet") == decided
    assert {event["kind"] for event in leader.events()} <= {"agent", "ready", "generation", "task"}


def test_an_agent_that_leaves_where_nobody_can_halt_is_told_so(tmp_path: Path) -> None:
    with leading(tmp_path, machines=2) as leader:
        one = Member(leader, "machine-1")
        one.until_run()
        tell(one, leaving=True, ready=False)
        until_told(one, "part")


def test_an_agent_that_leaves_has_the_gang_halt(leader: Leader) -> None:
    one = Member(leader, "machine-1")
    one.until_run()
    ask_for_a_save(one)
    tell(one, meeting=1, step=5, asks=1, leaving=True, ready=False)
    until_told(one, "halt")
    assert not any(wish["do"] == "part" for wish in one.wishes)


def test_an_agent_that_says_goodbye_while_it_halts_is_not_waited_for(leader: Leader) -> None:
    one = Member(leader, "machine-1")
    one.until_run()
    ask_for_a_save(one)
    leader.process.send_signal(signal.SIGINT)
    until_told(one, "halt")
    one.send({"bye": "it was asked to leave"})
    one.close()
    leader.process.wait(300)  # of a grace of ten minutes
    assert leader.state().state == "stopped"


def test_an_agent_that_is_lost_while_it_halts_is_not_waited_for_longer_than_the_grace(tmp_path: Path) -> None:
    with leading(tmp_path, machines=2, program=GATED, grace=1.0) as leader:
        one = Member(leader, "machine-1")
        one.until_run()
        ask_for_a_save(one)
        leader.process.send_signal(signal.SIGINT)
        until_told(one, "halt")
        one.close()
        leader.process.wait(300)
        assert leader.state().state == "stopped"
        asked, ended = (_moment(leader, kind) for kind in ("stop", "end"))
        assert ended - asked < 12, "only then it is given up"


def test_who_halts_in_vain_is_given_no_second_grace(tmp_path: Path) -> None:
    with leading(tmp_path, machines=2, program=GATED, grace=1.0) as leader:
        one = Member(leader, "machine-1")
        one.until_run()
        ask_for_a_save(one)
        leader.process.send_signal(signal.SIGINT)
        until_told(one, "halt")
        assert until_told(one, "stop")["now"] is True


def test_who_halts_in_vain_before_a_restart_is_cleared_away(tmp_path: Path) -> None:
    with leading(tmp_path, machines=2, program=GATED, grace=1.0) as leader:
        one = Member(leader, "machine-1")
        one.until_run()
        ask_for_a_save(one)
        assert control.ask(leader.folder, {"ask": "scale", "workers": 1})["ok"]
        until_told(one, "halt")
        until_told(one, "clear")
        assert not any(wish["do"] == "stop" for wish in one.wishes)


def test_a_broken_agent_loses_its_connection_and_disturbs_nobody(leader: Leader) -> None:
    one = Member(leader, "machine-1")
    one.until_run()
    one.send({"status": one.status(generation=1, gates={"worker-1": {"loop": "first"}})})
    one.sock.settimeout(60)
    while not one.is_closed:
        one.feed()
    assert leader.process.poll() is None


def _moment(leader: Leader, kind: str) -> float:
    """When the leading agent recorded it, by its own clock: a test that is held up sees it later."""
    return float(next(event["t"] for event in leader.events() if event["kind"] == kind))
