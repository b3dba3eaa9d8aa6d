"""The gate before every step: what the agent asks, what is held back, what is due."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from oarlock.training.steps import gate
from oarlock.training.steps.gate import Gate
from oarlock.training.task import channel
from oarlock.training.task.context import current
from tests.support.call_counts import calls_of
from tests.support.waiting import eventually

NOTHING: frozenset[str] = frozenset()


class Agent:
    """The agent's end of this process's line."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self._file = line.makefile("rb")

    def say(self, text: str) -> None:
        self.line.sendall(text.encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self._file.readline())
        return {key: value for key, value in heard.items() if key != "t"}

    def hears_nothing(self) -> bool:
        return not select.select([self.line], [], [], 0)[0]

    def ask(self, meeting: int) -> Any:
        self.say(f"where {meeting}")
        told = self.hear()
        assert (told["kind"], told["meeting"]) == ("at", meeting)
        return told["step"]

    def close(self) -> None:
        self._file.close()
        self.line.close()


@pytest.fixture(autouse=True)
def first_gate(no_launcher: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No gate of an earlier test is in the way."""
    monkeypatch.setattr(gate, "_newest", None)


@pytest.fixture
def agent(agent_line: socket.socket) -> Iterator[Agent]:
    found = Agent(agent_line)
    yield found
    found.close()


@pytest.fixture
def led(agent: Agent) -> Gate:
    """A gate that an agent knows, in step 3."""
    found = Gate(first=0)
    assert agent.hear() == {"kind": "gate", "loop": 1}
    for step in range(4):
        assert found.enter(step) == NOTHING
    return found


class Entering(threading.Thread):
    """A training thread that is about to begin a step."""

    def __init__(self, gate: Gate, step: int) -> None:
        super().__init__(daemon=True)
        self._work: Callable[[], frozenset[str]] = lambda: gate.enter(step)
        self.due: frozenset[str] | None = None
        self.start()

    def run(self) -> None:
        self.due = self._work()

    @property
    def is_held(self) -> bool:
        self.join(0.1)
        return self.is_alive()

    def result(self) -> frozenset[str]:
        self.join(300)
        assert not self.is_alive(), "still held back"
        assert self.due is not None
        return self.due


def test_it_answers_though_the_training_thread_is_busy_and_holds_back_the_second_next_step(
    agent: Agent, led: Gate
) -> None:
    assert agent.ask(1) == 3
    assert led.enter(4) == NOTHING
    entering = Entering(led, 5)
    assert entering.is_held
    agent.say("meet 1 save 6")
    assert entering.result() == NOTHING
    assert led.enter(6) == {"save"}
    assert led.enter(7) == NOTHING


def test_what_is_called_off_holds_nobody_back(agent: Agent, led: Gate) -> None:
    assert agent.ask(1) == 3
    entering = Entering(led, 5)
    assert entering.is_held
    agent.say("carry-on 1")
    assert entering.result() == NOTHING
    assert led.enter(6) == NOTHING


def test_an_agent_that_is_gone_holds_nobody_back(agent: Agent, led: Gate) -> None:
    assert agent.ask(1) == 3
    entering = Entering(led, 5)
    assert entering.is_held
    agent.line.shutdown(socket.SHUT_RDWR)
    assert entering.result() == NOTHING


def test_asked_again_after_a_cut_it_says_the_same_and_does_the_thing_once(agent: Agent, led: Gate) -> None:
    assert agent.ask(1) == 3
    assert led.enter(4) == NOTHING
    assert agent.ask(1) == 3
    agent.say("meet 1 save 5\nmeet 1 save 5")
    assert agent.ask(2) == 4
    agent.say("meet 1 save 5\ncarry-on 2")
    assert led.enter(5) == {"save"}
    assert led.enter(6) == NOTHING


def test_two_things_may_be_due_before_one_step(agent: Agent, led: Gate) -> None:
    assert agent.ask(1) == 3
    agent.say("meet 1 save 5")
    assert agent.ask(2) == 3
    agent.say("meet 2 halt 5")
    assert Entering(led, 5).result() == {"save", "halt"}


def test_steps_that_are_counted_in_tens_meet_at_the_next_one(agent: Agent) -> None:
    found = Gate(first=0)
    agent.hear()
    found.enter(0)
    found.enter(10)
    assert agent.ask(1) == 10
    entering = Entering(found, 20)
    assert entering.is_held
    agent.say("meet 1 halt 12")
    assert entering.result() == {"halt"}


def test_before_its_first_step_it_is_at_the_one_before(agent: Agent) -> None:
    Gate(first=120)
    agent.hear()
    assert agent.ask(1) == 119


def test_a_save_is_asked_for_once_though_every_step_says_so(agent: Agent, led: Gate) -> None:
    for _ in range(100):
        led.ask("save")
    assert agent.hear() == {"kind": "ask", "purpose": "save"}
    assert agent.hears_nothing()


def test_a_loop_that_is_over_says_so(agent: Agent, led: Gate) -> None:
    led.leave()
    assert agent.hears_nothing(), "nobody has asked"
    assert agent.ask(1) is None
    led.ask("save")
    assert agent.hears_nothing()


@pytest.mark.parametrize("decided", ["", "meet 1 halt 5"])
def test_a_loop_that_ends_before_the_step_that_was_agreed_on_says_so(
    agent: Agent, led: Gate, decided: str
) -> None:
    assert agent.ask(1) == 3
    if decided:
        agent.say(decided)
        eventually(lambda: led._due, "decision", every=0.01)
    led.leave()
    assert agent.hear() == {"kind": "at", "meeting": 1, "loop": 1, "step": None}


def test_the_next_loop_has_a_gate_of_its_own(agent: Agent, led: Gate) -> None:
    assert agent.ask(1) == 3
    after = Gate(first=0)
    assert agent.hear()["step"] is None
    assert agent.hear() == {"kind": "gate", "loop": 2}
    agent.say("meet 1 halt 5")
    assert agent.ask(2) == -1
    agent.say("carry-on 2")
    assert Entering(after, 5).result() == NOTHING


def test_being_asked_to_stop_is_heard_beside_it(agent: Agent, led: Gate) -> None:
    assert not current().should_stop
    agent.say("stop")
    eventually(lambda: current().should_stop, "stop", every=0.01)


def test_reports_and_answers_do_not_cut_into_each_other(agent: Agent, led: Gate) -> None:
    """Two threads of the task write to one line, which is full most of the time."""
    done = threading.Event()

    def note() -> None:
        while not done.is_set():
            channel.send({"kind": "note", "text": "x" * 5000})

    noting = threading.Thread(target=note, daemon=True)
    noting.start()
    answers = 0
    try:
        for meeting in range(1, 200):
            agent.say(f"where {meeting}")
            while (told := agent.hear())["kind"] != "at":
                assert len(told["text"]) == 5000
            answers += told["meeting"] == meeting
    finally:
        done.set()
    assert answers == 199


def test_a_forked_data_loader_does_not_answer(agent: Agent, led: Gate) -> None:
    stay, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(stay, 1)
        os._exit(0)
    try:
        assert agent.ask(1) == 3
        assert agent.hears_nothing()
    finally:
        os.close(go)
        os.close(stay)
        os.waitpid(child, 0)


def test_without_a_launcher_what_is_asked_for_is_due_at_once() -> None:
    alone = Gate(first=0)
    assert alone.enter(0) == NOTHING
    alone.ask("save")
    alone.ask("save")
    assert alone.enter(1) == {"save"}
    assert alone.enter(2) == NOTHING
    alone.leave()


ALONE = """
import os, signal, sys, time
from oarlock.training.steps.gate import Gate
gate = Gate(0)
for step in range(10**9):
    if "halt" in gate.enter(step):
        print("saved", flush=True)
        gate.leave()
        sys.exit(143)
    if step == 0:
        print("ready", flush=True)
    time.sleep(float(sys.argv[1]))
"""


def test_without_a_launcher_sigterm_ends_it_before_a_step() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ALONE, "0.01"], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGTERM)
        assert program.stdout.readline() == "saved\n"
        assert program.wait(300) == 143


def test_without_a_launcher_a_second_sigterm_ends_it_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ALONE, "1000"], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        deadline = 60.0
        while program.poll() is None and deadline > 0:
            program.send_signal(signal.SIGTERM)
            deadline -= 0.1
            try:
                program.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        assert program.returncode == -signal.SIGTERM


def test_a_program_that_has_its_own_way_with_sigterm_keeps_it() -> None:
    def mine(*_: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, mine)
    try:
        alone = Gate(first=0)
        assert signal.getsignal(signal.SIGTERM) is mine
        alone.leave()
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_after_its_loop_sigterm_is_as_it_was() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        alone = Gate(first=0)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        alone.leave()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_step_for_which_nothing_is_due_calls_nothing_but_the_lock(led: Gate) -> None:
    """So it costs next to nothing, which is 0.25 us where that was measured."""
    called = calls_of(partial(led.enter, 4))
    assert called[0] == "enter"
    assert set(called[1:]) <= {"__enter__", "__exit__", "acquire", "release"}, called
