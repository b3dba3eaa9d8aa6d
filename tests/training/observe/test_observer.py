"""What hooks see, on its way to the agent: how often, from whom, and what a broken hook costs."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from oarlock.training.observe import observer
from oarlock.training.task import channel
from oarlock.training.task.context import current


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {"_source": None, "_broken": set(), "_newest": None, "_is_closed": True}
    seen["_told_at"] = float("-inf")
    for name, value in seen.items():
        monkeypatch.setattr(observer, name, value)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(observer, "time", clock)
    monkeypatch.setattr(channel, "time", clock)
    return clock


class Clock:
    """It is always the time that the test says."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


class Tensor:
    """Counts how often it is read, which on a device means to wait for it."""

    reads = 0

    def __float__(self) -> float:
        self.reads += 1
        return 0.5


def received(agent: socket.socket) -> list[dict[str, Any]]:
    agent.setblocking(False)
    try:
        return [json.loads(line) for line in agent.recv(1 << 20).splitlines()]
    except BlockingIOError:
        return []


def steps(agent: socket.socket) -> list[int]:
    return [event["step"] for event in received(agent)]


def test_two_reports_a_second_are_sent_and_only_their_loss_is_read(
    agent_line: socket.socket, clock: Clock
) -> None:
    loss = Tensor()
    for step in range(1, 65):  # in two seconds
        observer.tell("keras", step, loss=loss)
        clock.now += 1 / 32
    assert steps(agent_line) == [1, 17, 33, 49]
    assert loss.reads == 4
    observer.finish("keras")
    last = received(agent_line)[-1]
    assert (last["step"], last["more"]) == (64, False)


def test_the_last_step_of_a_counter_is_sent_when_the_program_ends(
    agent_line: socket.socket, clock: Clock
) -> None:
    for step in (1, 2, 3):
        observer.tell("accelerate", step)
    channel.flush()
    assert steps(agent_line) == [1, 3]


def test_a_loop_that_validates_is_alive_and_one_that_has_ended_is_not(
    agent_line: socket.socket, clock: Clock
) -> None:
    observer.alive("lightning")  # before any step: nothing is known
    observer.tell("lightning", 7, total=9)
    clock.now += 1
    observer.alive("lightning")
    assert [(event["step"], event["total"], event["more"]) for event in received(agent_line)] == [
        (7, 9, True),
        (7, 9, True),
    ]
    clock.now += 1
    observer.finish("lightning")
    observer.alive("lightning")
    observer.finish("lightning")
    assert [event["more"] for event in received(agent_line)] == [False]


def test_a_stronger_source_replaces_a_weaker_one_for_good(agent_line: socket.socket, clock: Clock) -> None:
    observer.tell("tqdm", 5000)
    assert observer.claim("transformers")
    observer.tell("tqdm", 5001)
    observer.tell("accelerate", 1)
    clock.now += 1
    observer.tell("transformers", 2)
    assert steps(agent_line) == [5000, 2]


def test_a_report_of_the_program_silences_every_hook(agent_line: socket.socket, clock: Clock) -> None:
    observer.tell("keras", 1, total=50)
    observer.tell("keras", 2, total=50)  # held, and then dropped
    current().report(10)
    clock.now += 1
    observer.tell("keras", 3, total=50)
    observer.finish("keras")
    channel.flush()
    events = received(agent_line)
    assert [(event["step"], event.get("total")) for event in events] == [(1, 50), (10, None)]


def test_a_broken_hook_is_off_and_says_so_once(agent_line: socket.socket) -> None:
    def breaks(step: int) -> None:
        raise LookupError("no such field")

    hook = observer.careful("tqdm", breaks)
    hook(1)
    hook(2)
    observer.tell("tqdm", 3)
    assert [event["text"] for event in received(agent_line)] == [
        "the progress of tqdm is no longer shown: LookupError: no such field"
    ]


def test_a_hook_costs_a_step_microseconds(agent_line: socket.socket) -> None:
    """Without a bound on the time: that nothing is sent, read or waited for at most steps."""
    began = time.monotonic()
    for step in range(10_000):
        observer.tell("keras", step)
    assert len(received(agent_line)) <= 1 + (time.monotonic() - began) / observer._INTERVAL
