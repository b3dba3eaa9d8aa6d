"""Whatever strangers, members and tasks say, bent in every way: the steps go on and the verdict is right.

The seed is printed; OARLOCK_FUZZ_SEED sets another one. `make soak` says fifty times as much.
"""

from __future__ import annotations

import base64
import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.protocol import wire
from oarlock.agent.protocol.wire import pack
from tests.support import odd
from tests.support.gangs import Gang
from tests.support.members import Leader, Member, leading

COUNT = 1000 * odd.ROUNDS
SEED = int(os.environ.get("OARLOCK_FUZZ_SEED", "12"))
MEMORY = 200 * 2**20
STEPPING = """
import time, oarlock
from pathlib import Path
me, step = oarlock.current(), 0
while not Path("done").exists():
    step += 1
    me.report(step)
    time.sleep(0.05)
"""
# As any other user of the machine: each line is what it sends on a connection of its own.
STRANGER = """
import base64, os, socket, sys
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
address = (sys.argv[1], int(sys.argv[2]))
for line in sys.stdin:
    with socket.socket() as connection:
        connection.settimeout(60)
        connection.connect(address)
        connection.recv(4096)
        try:
            connection.sendall(base64.b64decode(line))
            connection.shutdown(socket.SHUT_WR)
            connection.recv(4096)
        except ConnectionError:
            pass
"""


@pytest.fixture
def chance() -> random.Random:
    print("seed", SEED)
    return random.Random(SEED)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    """It trains alone."""
    with leading(tmp_path, machines=1, program=STEPPING) as found:
        found.until(lambda: getattr(found.state().leader, "step", None), "the first step")
        yield found


def goes_on_to_the_end(leader: Leader) -> None:
    """Further steps, no trouble, and the verdict that the program gives."""
    reports = len(leader.events())
    leader.until(lambda: [one for one in leader.events()[reports:] if one["kind"] == "report"], "more steps")
    assert leader.peak_memory() <= MEMORY
    (Path(leader.spec.cwd) / "done").touch()
    assert leader.process.wait(300) == 0, leader.log()[-3000:]
    assert leader.state().state == "succeeded"
    assert "Traceback" not in leader.log()


# Before the greeting


def call(leader: Leader, said: list[bytes]) -> None:
    """As somebody who may not even read the token, if we may be somebody else."""
    lines = "\n".join(base64.b64encode(one).decode() for one in said)
    words = [sys.executable, "-c", STRANGER, *map(str, leader.address)]
    subprocess.run(words, input=lines, text=True, check=True, timeout=600 * odd.ROUNDS)


def frame(text: bytes) -> bytes:
    return struct.pack("!I", len(text)) + text


HELLO = {"name": "machine-1", "uid": "u", "machine": "m", "host": "h"}
GREETING = wire.greeting(HELLO, "0" * 32)
OLD_GREETING = {"hello": {**HELLO, "born": 1.0}, "nonce": "n", "proof": "0" * 64}
EXPLOITS = [
    pack({**OLD_GREETING, "proof": "\ud800"}),
    pack({**GREETING, "nonce": "\ud800"}),
    *(frame(b'{"version":2,"hello":' + b"[" * deep + b"]" * deep + b"}") for deep in range(975, 1000)),
    frame(b'{"version":2,"nonce":"","hello":{"born":1' + b"0" * 400 + b"}}"),
    frame(b"[" * 4000),
    b"\0" * 64,
    struct.pack("!I", 2**31 - 1),
    b"GET / HTTP/1.1\r\n\r\n",
]


def test_a_stranger_ends_nobodys_run(leader: Leader, chance: random.Random) -> None:
    said = [*EXPLOITS, *(one + bytes(wire.SEAL) for one in EXPLOITS)]
    while len(said) < COUNT:
        text = odd.mutated(chance, json.dumps(chance.choice([GREETING, OLD_GREETING])))[:8192]
        said.append(frame(text) + chance.randbytes(chance.choice([0, wire.SEAL, 20])))
    call(leader, said)
    goes_on_to_the_end(leader)
    notes = [event["text"] for event in leader.events() if event["kind"] == "note"]
    assert any("of strangers: a frame without this run's seal" in note for note in notes), notes
    assert len(notes) < 20, "each kind is said once"


# After it


def messages(generation: int) -> list[dict[str, Any]]:
    outcome = {
        "name": "worker-1",
        "launch": 1,
        "began": 1.0,
        "code": None,
        "signal": None,
        "ours": False,
        "error": {"type": "E", "message": "m", "where": "w"},
        "failed_at": None,
        "starved": False,
    }
    status = {
        "generation": generation,
        "cleared": 0,
        "ready": True,
        "leaving": False,
        "ports": [20000],
        "slots": {"worker": 1},
        "tasks": [outcome],
        "gates": {"worker-1": {"loop": 1, "asks": 0, "meeting": 0, "step": None}},
    }
    told = {"t": 1.0, "task": "worker-1"}
    return [
        {"status": status},
        {"events": [{**told, "kind": "report", "step": 1, "total": 2, "busy": 0.5, "loss": 0.5}]},
        {"events": [{**told, "kind": "task", "state": "started", "pid": 1}]},
        {"events": [{**told, "kind": "error", "type": "E", "message": "m", "where": "w"}]},
        {"events": [{**told, "kind": "checkpoint", "seconds": 1.0, "step": 3}]},
        {"events": [{"t": 1.0, "kind": "note", "text": "hello"}]},
        {"events": [{"t": 1.0, "kind": "ready", "warm": True, "seconds": 1.0, "modules": ["a"]}]},
        {"beat": 1},
    ]


def test_a_member_that_talks_nonsense_loses_its_connection_and_ends_nothing(
    tmp_path: Path, chance: random.Random
) -> None:
    with leading(tmp_path, machines=2, program=STEPPING, restarts=10**6) as leader:
        for number in range(COUNT):
            member = Member(leader, "machine-1", uid="u")
            member.until(lambda one: one.wishes, "seat")
            message = json.loads(
                json.dumps(odd.change(chance, chance.choice(messages(member.wishes[-1]["generation"]))))
            )
            assert member.seal is not None
            said = wire.sealed(
                pack(message if isinstance(message, dict) else {"status": message}), member.seal
            )
            if number % 4 == 0:
                at = chance.randrange(len(said))
                said = said[:at] + bytes([said[at] ^ 1 << chance.randrange(8)]) + said[at + 1 :]
            member.sock.sendall(said)
            member.close()
            leader.members.remove(member)
        host = Host(leader)
        host.until_training()
        assert leader.process.poll() is None, leader.log()
        assert leader.peak_memory() <= MEMORY
        assert "Traceback" not in leader.log()
        (Path(leader.spec.cwd) / "done").touch()
        host.until_over()
        assert leader.process.wait(300) == 0, leader.log()[-3000:]
        assert leader.state().state == "succeeded"


class Host:
    """A good machine-1, after all: it says that it runs what it is given, and clears away when asked."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.member = Member(leader, "machine-1", uid="u")
        self.at = 0

    def until_training(self) -> None:
        def is_training(_: Member) -> bool:
            self._answer()
            state = self.leader.state()
            wish = self.member.wishes[-1] if self.member.wishes else {}
            first = next(iter(state.tasks.values()), None)
            is_formed = wish.get("do") == "run" and state.generation == wish["generation"]
            return is_formed and first is not None and first.state == "running" and bool(first.step)

        self.member.until(is_training, "steps")

    def until_over(self) -> None:
        def is_over(_: Member) -> bool:
            self._answer()
            return bool(self.member.wishes[-1]["do"] == "over")

        self.member.until(is_over, "verdict")

    def _answer(self) -> None:
        for wish in self.member.wishes[self.at :]:
            self.at += 1
            cleared = wish["generation"] if wish["do"] in ("clear", "finish", "stop") else 0
            if wish["do"] in ("run", "clear", "finish", "stop"):
                told = self.member.status(generation=wish["generation"], cleared=cleared)
                self.member.send({"status": told})


def outcome(task: str, code: int | None) -> dict[str, Any]:
    return {**messages(1)[0]["status"]["tasks"][0], "name": task, "code": code, "error": None}


def forge(generation: int) -> list[tuple[str, dict[str, Any]]]:
    status = Member.status
    usual = {"generation": generation, "tasks": [outcome("worker-1", None)]}
    note = {"t": 1.0, "kind": "note", "text": "hello"}
    return [
        ("another's success", {"status": status(**{**usual, "tasks": [outcome("worker-0", 0)]})}),
        ("another's failure", {"status": status(**{**usual, "tasks": [outcome("worker-2", 1)]})}),
        ("nobody's task", {"status": status(**{**usual, "tasks": [outcome("worker-99", 0)]})}),
        (
            "another's end",
            {"events": [{**note, "kind": "task", "task": "worker-0", "state": "ended", "code": 0}]},
        ),
        ("the whole run's end", {"events": [{**note, "kind": "end", "state": "succeeded", "code": 0}]}),
        ("an end while it works", {"events": [{**note, "kind": "never_ready"}], "status": status(**usual)}),
        ("odd names", {"events": [{**note, "self": 1, "fields": 2, "\ud800": "\ud800", "\0": "\0"}]}),
        (
            "a step of 400 digits",
            {"events": [{**note, "kind": "report", "task": "worker-1", "step": 10**400}]},
        ),
        ("a far generation", {"status": status(generation=2**53, cleared=2**53)}),
        ("a later generation", {"status": status(generation=2**64)}),
        (
            "a signal that is none",
            {"status": status(**{**usual, "tasks": [{**outcome("worker-1", 0), "signal": 99}]})},
        ),
    ]


def test_a_member_speaks_for_its_own_tasks_only(tmp_path: Path) -> None:
    """Whatever it claims of others, the run goes on as if nothing had been said."""
    with leading(tmp_path, machines=3, program=STEPPING) as leader:
        good, bad = Member(leader, "machine-2"), Member(leader, "machine-1", uid="u")
        for one in (good, bad):
            one.until(lambda member: member.wishes, "seat")
        generation = good.until_run()["generation"]
        told = good.status(generation=generation, tasks=[outcome("worker-2", None)])
        good.send({"status": told})
        leader.until(lambda: leader.state().tasks["worker-0"].step, "the first step")
        for what, message in forge(generation):
            bad = Member(leader, "machine-1", uid="u")
            bad.until(lambda member: member.wishes, "seat")
            bad.send({"status": bad.status(generation=generation, tasks=[outcome("worker-1", None)])})
            bad.send(message)
            after = Member(leader, "machine-1", uid="u")  # whoever is welcomed later is heard later
            after.until(lambda member: member.wishes, "seat")
            state = leader.state()
            assert (state.state, state.generation, state.restarts) == ("running", generation, 0), what
        steps = leader.state().tasks["worker-0"].step or 0
        leader.until(lambda: (leader.state().tasks["worker-0"].step or 0) > steps, "more steps")
        leader.until(
            lambda: any("machine-1: it spoke for a task" in note for note in leader.state().notes),
            "note of it",
        )
        assert "Traceback" not in leader.log()


# Tasks

TALKING = """
import os, sys, time, oarlock
from pathlib import Path
from oarlock.training.task import channel
me = oarlock.current()
line = channel.open_line()
line.setblocking(True)
for number, text in enumerate(Path("said").read_bytes().split(b"\\n")):
    line.sendall(text + b"\\n")
    if number % 100 == 0:
        me.report(number + 1)
me.report(10**6)
"""


def test_a_task_that_talks_nonsense_costs_its_lines(
    start: Callable[..., Gang], tmp_path: Path, chance: Any
) -> None:
    # An error that is told is believed: the task is given 5 s to end. So there is none here.
    events: list[dict[str, Any]] = [
        {"kind": "report", "t": 1.0, "step": 1, "total": 2, "busy": 0.5, "loss": 0.5},
        {"kind": "note", "t": 1.0, "text": "hello"},
        {"kind": "checkpoint", "t": 1.0, "seconds": 1.0, "step": 3},
        {"kind": "gate", "loop": 1},
        {"kind": "ask", "purpose": "save"},
        {"kind": "at", "meeting": 1, "loop": 1, "step": 4},
    ]
    said = [
        b"[" * 100_000,
        b'{"kind":"report","busy":"high","step":1' + b"0" * 400 + b"}",
        b'{"kind":"report","self":1,"kind":"report","t":"now","task":"worker-1"}',
        b'{"kind":"note"}',
        b'{"kind":"at","step":1' + b"0" * 400 + b"}",
        b'{"kind":"end","t":1,"state":"failed"}',
        b'{"kind":["report"]}',
        b"\xff\xfe",
        b"x" * (1 << 21),
    ]
    while len(said) < COUNT:
        text = odd.mutated(chance, json.dumps(chance.choice(events))).replace(b"\n", b" ")
        if b'"error"' not in text:
            said.append(text)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "said").write_bytes(b"\n".join(said))
    gang = start(TALKING)
    state = gang.end(120 * odd.ROUNDS)
    assert (state.state, state.code, state.restarts) == ("succeeded", 0, 0), gang.told()
    assert state.tasks["worker-0"].step == 10**6
    notes = [event["text"] for event in gang.of("note")]
    assert any(note.startswith("dropped ") and "of worker-0: " in note for note in notes), notes[:20]
    assert "Traceback" not in (gang.run.path / "agent.log").read_text()


def test_a_told_error_without_a_time_is_that_tasks_error(start: Callable[..., Gang]) -> None:
    gang = start(
        """
from oarlock.training.task import channel
line = channel.open_line()
line.sendall(b'{"kind":"error"}\\n')
raise SystemExit(3)
""",
        limits={"restarts": 0},
        roles={"worker": 1},
    )
    state = gang.end()
    assert state.state == "failed"
    assert state.failure is not None
    assert state.failure.task == "worker-0"


def test_names_of_metrics_do_not_pile_up(start: Callable[..., Gang]) -> None:
    gang = start(
        """
import oarlock, time
from oarlock.training.task import channel
me, line = oarlock.current(), channel.open_line()
line.setblocking(True)
for step in range(3000):
    line.sendall(b'{"kind":"report","step":%d,"metric-%d":1,"busy":"high"}\\n' % (step, step))
line.sendall(b'{"kind":"report","%s":1,"long":"%s"}\\n' % (b"n" * 101, b"v" * 2000))
me.report(3000, loss=0.5)
""",
        roles={"worker": 1},
    )
    state = gang.end()
    assert state.state == "succeeded", gang.told()
    task = state.tasks["worker-0"]
    assert task.step == 3000
    assert len(task.metrics) < 100
    assert not {"long", "n" * 101} & set(task.metrics)
    assert max(len(json.dumps(event)) for event in gang.of("report")) < 5000
    assert any("worker-0: more than 100 names of metrics" in event["text"] for event in gang.of("note"))
