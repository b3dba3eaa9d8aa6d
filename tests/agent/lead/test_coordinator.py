"""The leading agent's open port: hundreds of members, ten thousand strangers, and what each may do."""

from __future__ import annotations

import resource
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from oarlock.agent.protocol import wire
from oarlock.agent.protocol.wire import Unpacker, pack
from tests.support.members import Leader, Member, attend, leading
from tests.support.soaking import IS_SOAK


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    with leading(tmp_path, machines=3) as found:
        yield found


def test_agents_join_and_each_is_told_the_same_gang(leader: Leader) -> None:
    one, two = Member(leader, "machine-1"), Member(leader, "machine-2")
    assert attend([one, two], lambda: bool(one.wishes and two.wishes and one.wishes[-1]["do"] == "run"))
    wish = two.until_run()
    assert wish == one.until_run()
    assert wish["places"] == {"machine-0": ["worker-0"], "machine-1": ["worker-1"], "machine-2": ["worker-2"]}


def test_of_two_machines_with_one_name_the_one_that_came_last_stays(leader: Leader) -> None:
    first = Member(leader, "machine-1", machine="pod-1")
    first.until(lambda one: one.wishes, "wish")
    second = Member(leader, "machine-1", machine="pod-2")
    second.until(lambda one: one.wishes, "wish")
    first.until(lambda one: one.wishes[-1]["do"] == "over", "dismissal")
    again = Member(leader, "machine-1", machine="pod-1")  # its container was started again
    again.until(lambda one: one.refused, "refusal")
    assert again.refused == "another machine has taken the place of machine-1"
    leader.close()
    leader.start()
    zombie = Member(leader, "machine-1", machine="pod-1")
    zombie.until(lambda one: one.refused, "refusal by the leader that follows")
    right = Member(leader, "machine-1", machine="pod-2")
    right.until(lambda one: one.wishes, "wish")


def test_nobody_takes_the_leading_agents_own_place(leader: Leader) -> None:
    usurper = Member(leader, "machine-0")
    usurper.until(lambda one: one.refused, "refusal")
    assert usurper.refused == "machine-0 leads this run"


def test_an_agent_that_returns_after_a_cut_keeps_its_gang(leader: Leader) -> None:
    one, two = Member(leader, "machine-1"), Member(leader, "machine-2")
    attend([one, two], lambda: bool(one.wishes) and one.wishes[-1]["do"] == "run")
    generation = one.until_run()["generation"]
    one.close()
    again = Member(leader, "machine-1", uid=str(one.hello["uid"]))
    assert again.until_run()["generation"] == generation
    assert leader.state().restarts == 0


def test_an_agent_that_does_not_return_ends_the_generation(tmp_path: Path) -> None:
    """After 12 s: by then it has ended its own tasks."""
    with leading(tmp_path, machines=2) as leader:
        one = Member(leader, "machine-1")
        one.until_run()
        one.close()
        leader.until(lambda: leader.state().restarts, "restart")
        [restart] = [event for event in leader.events() if event["kind"] == "restart"]
        assert restart["reason"].startswith("lost contact with machine-1 (")
        assert restart["reason"].endswith("), which hosted worker-1")


def test_a_clock_that_is_ahead_does_not_move_the_runs(leader: Leader) -> None:
    one = Member(leader, "machine-1")
    one.until(lambda member: member.wishes, "seat")
    for t in (time.time() + 1e6, 9e10):
        one.send({"events": [{"kind": "note", "t": t, "text": f"at {t}"}]})
        leader.until(partial(_has_note, leader, f"at {t}"), "note")
    state = leader.state()
    assert state.updated is not None
    assert state.updated <= time.time()
    passed = state.updated - leader.events()[0]["t"]
    assert state.accounts.in_seconds()["total"] == pytest.approx(passed, abs=2e-6)


def test_a_leader_that_died_and_came_back_forms_the_next_generation(leader: Leader) -> None:
    one, two = Member(leader, "machine-1"), Member(leader, "machine-2")
    attend([one, two], lambda: bool(one.wishes) and one.wishes[-1]["do"] == "run")
    before = one.until_run()["generation"]
    leader.close()
    leader.start()
    again = [Member(leader, name, generation=before) for name in ("machine-1", "machine-2")]
    attend(again, lambda: any(wish["do"] == "run" for wish in again[0].wishes))
    assert again[0].until_run()["generation"] == before + 1


def test_hundreds_of_agents_form_a_gang(tmp_path: Path) -> None:
    count = 1000 if IS_SOAK else 200
    _allow_descriptors()
    with leading(tmp_path, machines=count + 1) as leader:
        leader.until(lambda: any(event["kind"] == "ready" for event in leader.events()), "ready zygote")
        members: list[Member] = []
        for index in range(1, count + 1):
            members.append(Member(leader, f"machine-{index}"))
            members[-1].until(lambda one: one.is_seated, "seat")  # it has five seconds to show the token
        formed = attend(
            members, lambda: all(one.wishes and one.wishes[-1]["do"] == "run" for one in members), 300
        )
        assert formed, leader.log()[-2000:]
        wish = members[-1].until_run()
        assert len(wish["tasks"]) == count + 1
        assert leader.peak_memory() <= 200 * 2**20


def test_strangers_cost_a_socket_and_none_joins(leader: Leader) -> None:
    """Garbage, half frames, huge lengths, wrong tokens, replayed proofs and silence, mixed."""
    _allow_descriptors()
    replay = _overheard_proof(leader)
    silent: list[socket.socket] = []
    for number in range(10_000):
        line = socket.create_connection(leader.address, timeout=300)
        kind = number % 6
        try:
            if kind == 0:
                line.sendall(secrets.token_bytes(64))
            elif kind == 1:
                line.sendall(pack({"hello": {"name": "machine-1"}})[:-3])
            elif kind == 2:
                line.sendall(struct.pack("!I", 0x7FFFFFFF) + b"x" * 100)
            elif kind == 3:
                hello = {"name": "machine-1", "uid": "u", "machine": "m", "host": "h"}
                line.sendall(pack(wire.greeting(hello, wire.nonce())) + bytes(wire.SEAL))
            elif kind == 4:
                line.sendall(replay)
        except (ConnectionError, BrokenPipeError):
            pass  # it was closed on us already: room was needed
        if kind == 5 and len(silent) < 1000:
            silent.append(line)
        else:
            line.close()
    one, two = Member(leader, "machine-1"), Member(leader, "machine-2")
    assert attend([one, two], lambda: bool(one.wishes) and one.wishes[-1]["do"] == "run")
    wish = two.until_run()
    assert set(wish["places"]) == {"machine-0", "machine-1", "machine-2"}
    assert leader.peak_memory() <= 200 * 2**20
    for line in silent:
        line.close()


def _overheard_proof(leader: Leader) -> bytes:
    """What a real agent said to another challenge."""
    hello = {"name": "machine-1", "uid": "u", "machine": "m", "host": "h"}
    with socket.create_connection(leader.address, timeout=300) as line:
        [challenge] = [one["challenge"] for one in Unpacker().feed(line.recv(4096))]
    seal = wire.Seal(wire.greeting_key(leader.token, challenge))
    return wire.sealed(pack(wire.greeting(hello, wire.nonce())), seal)


def _allow_descriptors() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(65536, most), most))


def _has_note(leader: Leader, text: str) -> bool:
    return text in leader.state().notes
