"""`oarlock.current()` with and without a launcher, and what a task tells its agent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock.run.cluster import form
from oarlock.run.contract import Gang, environment
from oarlock.training.task import channel
from oarlock.training.task.context import current
from oarlock.training.task.throughput import Throughput

pytestmark = pytest.mark.usefixtures("no_launcher")
FOLDERS = {"data": "/d", "checkpoints": "/c", "model": "/m", "logs": "/l"}


class Clock:
    """Stands in for the `time` module: it is always the time that the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(channel, "time", clock)
    return clock


@pytest.fixture
def agent(agent_line: socket.socket) -> socket.socket:
    return agent_line


def received(agent: socket.socket) -> list[dict[str, Any]]:
    """What has come until now, without how busy the task was: that is known only after a while, which a
    loaded machine may take for a single test. A pair of sockets delivers at once."""
    agent.setblocking(False)
    try:
        events = [json.loads(line) for line in agent.recv(1 << 20).splitlines()]
    except BlockingIOError:
        return []
    return [{name: value for name, value in event.items() if name != "busy"} for event in events]


def test_without_a_launcher_it_is_the_only_task_and_leads() -> None:
    task = current()
    assert (task.rank, task.world, task.role, task.index) == (0, 1, "worker", 0)
    assert task.is_chief
    assert not task.is_launched
    assert (task.generation, task.seed) == (1, 0)
    assert (task.data, task.checkpoints) == (Path("data"), Path("checkpoints"))
    assert (task.model, task.logs) == (Path("model"), Path("logs"))
    task.report(1, loss=0.5)
    task.note("nobody hears this")
    assert not task.should_stop


@pytest.mark.parametrize(
    ("sizes", "index", "expected"),
    [
        ({"worker": 3}, 0, ("worker", 0, 0, 3, True)),
        ({"worker": 3}, 2, ("worker", 2, 2, 3, False)),
        ({"chief": 1, "worker": 2}, 0, ("chief", 0, 0, 3, True)),
        ({"chief": 1, "worker": 2}, 1, ("worker", 0, 1, 3, False)),
        ({"worker": 2, "evaluator": 1}, 2, ("evaluator", 0, -1, 2, False)),
    ],
)
def test_under_a_launcher_it_is_who_the_contract_says(
    sizes: dict[str, int], index: int, expected: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = form(sizes)
    addresses = {task.name: f"127.0.0.1:{5000 + number}" for number, task in enumerate(tasks)}
    gang = Gang(run="job-abcd", generation=4, tasks=tasks, addresses=addresses, seed=9)
    for name, value in environment(gang, tasks[index], FOLDERS).items():
        monkeypatch.setenv(name, value)
    task = current()
    assert (task.role, task.index, task.rank, task.world, task.is_chief) == expected
    assert (task.run, task.generation, task.seed, task.is_launched) == ("job-abcd", 4, 9, True)
    assert [task.data, task.checkpoints, task.model, task.logs] == [Path(f) for f in FOLDERS.values()]


def test_under_another_launcher_it_is_who_that_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or every rank of a torchrun would take itself for the chief, and save."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (current().rank, current().world, current().is_chief) == (1, 4, False)


def test_a_report_reaches_the_agent(agent: socket.socket, clock: Clock) -> None:
    current().report(3, total=10, loss=0.25)
    assert received(agent) == [{"step": 3, "total": 10, "loss": 0.25, "t": 1e9 + 100, "kind": "report"}]


def test_ten_reports_a_second_are_sent_and_the_last_one_is_kept(agent: socket.socket, clock: Clock) -> None:
    for step in range(100):
        clock.now = 100 + step / 50
        current().report(step)
    steps = [event["step"] for event in received(agent)]
    assert steps[0] == 0
    assert 17 <= len(steps) <= 21  # two seconds of them
    assert steps == sorted(steps)

    channel.flush()  # as at the end of the program
    assert [event["step"] for event in received(agent)] == [99]
    channel.flush()
    assert received(agent) == []


def test_what_a_kept_report_said_is_not_lost(agent: socket.socket, clock: Clock) -> None:
    current().report(1, loss=3.0)
    current().report(2, val_loss=2.0)
    current().report(3, loss=1.0)
    clock.now += 1
    current().report(4)
    last = received(agent)[-1]
    assert (last["step"], last["val_loss"], last["loss"]) == (4, 2.0, 1.0)


def test_a_metric_is_read_only_when_its_report_is_sent(agent: socket.socket, clock: Clock) -> None:
    """On an accelerator, reading a number waits for the step that computes it."""

    class Metric:
        reads = 0

        def __float__(self) -> float:
            Metric.reads += 1
            return 0.5

    for step in range(50):
        current().report(step, loss=Metric())
    assert Metric.reads == 1
    assert received(agent)[0]["loss"] == 0.5


@pytest.fixture
def h200(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_throughput", Throughput(clock.monotonic, lambda: ["NVIDIA H200"]))


@pytest.mark.usefixtures("h200")
def test_operations_of_a_step_become_a_share_of_the_gpu(agent: socket.socket, clock: Clock) -> None:
    for step in range(1, 12):
        current().report(step, loss=0.5, flops=98.9e12)
        clock.now += 1
    first, *_, last = received(agent)
    assert "flops" not in first
    assert "mfu" not in first
    assert (last["mfu"], last["flops_per_second"], last["loss"]) == (0.1, 98.9e12, 0.5)
    assert channel.newest()["mfu"] == 0.1


@pytest.mark.usefixtures("h200")
def test_operations_may_be_told_for_steps_that_only_hooks_see(agent: socket.socket, clock: Clock) -> None:
    current().report(flops=98.9e12, tokens_per_step=500)
    for step in range(1, 12):
        channel.report_observed({"step": step, "observed": "keras"})
        clock.now += 1
    last = received(agent)[-1]
    assert (last["mfu"], last["tokens_per_second"]) == (0.1, 500)


def test_what_is_reported_has_a_step() -> None:
    for wrong in ({"loss": 0.5}, {}, {"flops": 1e12, "loss": 0.5}, {"flops": 1e12, "total": 3}):
        with pytest.raises(TypeError, match="needs a step"):
            current().report(**wrong)  # type: ignore[arg-type]


def test_a_note_is_sent_at_once(agent: socket.socket) -> None:
    current().report(1)
    current().note("halfway")
    assert received(agent)[1]["text"] == "halfway"


def test_being_asked_to_stop_is_remembered(agent: socket.socket) -> None:
    assert not current().should_stop
    agent.sendall(b"stop\n")
    assert current().should_stop
    assert current().should_stop


def test_an_agent_that_is_gone_does_not_stop_the_training(agent: socket.socket, clock: Clock) -> None:
    current().report(1)
    agent.close()
    clock.now += 1
    current().report(2)
    assert not current().should_stop


FORKING = """
import os, sys
import oarlock
task = oarlock.current()
task.report(1)
task.report(2)
if os.fork() == 0:
    task.report(1000)
    task.note("a child speaks")
    sys.exit(0)  # as a data loader's process ends, with its exit handlers
os.wait()
"""


def test_a_forked_child_does_not_speak_for_its_parent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        environ = {**os.environ, "OARLOCK_FD": str(theirs.fileno())}
        command = [sys.executable, "-c", FORKING]
        subprocess.run(command, env=environ, pass_fds=[theirs.fileno()], timeout=300, check=True)
        assert [(event["kind"], event.get("step")) for event in received(ours)] == [
            ("report", 1),
            ("report", 2),
        ]


def test_an_agent_that_does_not_read_does_not_stop_the_training(agent: socket.socket, clock: Clock) -> None:
    for step in range(1, 20_001):
        clock.now += 1
        current().report(step, loss=0.5)
    whole = [json.loads(line) for line in agent.recv(1 << 24).splitlines()]
    assert [event["step"] for event in whole] == list(range(1, len(whole) + 1)), (
        "whole lines, up to the full one"
    )
