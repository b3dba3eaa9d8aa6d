"""Reported values that their device has not computed yet, or has lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oarlock.training.task import channel, gpu_values
from tests.support.small_programs import write
from tests.support.task_lines import read_to_end


class _Copied:
    """An event of CUDA, which stands for the copy of a value."""

    def __init__(self, is_done: bool = False, error: str | None = None) -> None:
        self.is_done, self.error = is_done, error

    def query(self) -> bool:
        if self.error:
            raise RuntimeError(self.error)
        return self.is_done

    def synchronize(self) -> None:
        if not self.query():
            raise AssertionError("this copy never comes")


class _Loss:
    """A value on a GPU, as far as reports look at it."""

    def __init__(self, number: float, device: str = "cuda:0") -> None:
        self.number, self.device, self.is_cuda = number, device, device != "cpu"

    def detach(self) -> _Loss:
        return self

    def copy_(self, other: _Loss, non_blocking: bool) -> None:
        assert non_blocking
        self.number = other.number

    def __float__(self) -> float:
        return self.number


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, _Copied]:
    """Stands in for torch with two GPUs, of which `cuda:0` is the current one: each one's event."""
    events = {"cuda:0": _Copied(is_done=True), "cuda:1": _Copied(is_done=True)}
    current = ["cuda:0"]

    class Device(nullcontext[None]):
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            current.insert(0, self.name)

        def __exit__(self, *_: object) -> None:
            current.pop(0)

    class Event:
        def record(self) -> None:
            self.of = events[current[0]]

        def query(self) -> bool:
            return self.of.query()

        def synchronize(self) -> None:
            self.of.synchronize()

    def empty_like(value: _Loss, device: str, pin_memory: bool) -> _Loss:
        return _Loss(float("nan"), device)

    cuda = SimpleNamespace(device=Device, Event=Event)
    torch = SimpleNamespace(cuda=cuda, empty_like=empty_like)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return events


def test_a_value_is_here_when_its_own_gpu_has_copied_it(gpus: dict[str, _Copied]) -> None:
    gpus["cuda:1"].is_done = False
    values = gpu_values.OnTheWay({"step": 3, "loss": _Loss(2.5, "cuda:1"), "other": _Loss(1.0)})
    assert not values.is_here
    assert values.read(are_awaited=False).keys() == {"step", "other"}
    gpus["cuda:1"].is_done = True
    assert values.is_here
    assert {name: float(value) for name, value in values.read().items()} == {
        "step": 3,
        "loss": 2.5,
        "other": 1.0,
    }


def test_a_failed_gpu_costs_its_values_and_no_report(
    gpus: dict[str, _Copied], agent_line: socket.socket
) -> None:
    gpus["cuda:0"].is_done = False
    channel.report({"step": 1, "loss": _Loss(2.5)})
    gpus["cuda:0"].error = "CUDA error: device-side assert triggered"
    channel.flush()
    sent = json.loads(agent_line.recv(4096))
    assert sent["step"] == 1
    assert "loss" not in sent


def test_after_a_failure_no_value_is_waited_for_that_never_comes(
    gpus: dict[str, _Copied], agent_line: socket.socket
) -> None:
    gpus["cuda:0"].is_done = False  # it waits for a task that is dead
    channel.report({"step": 1, "loss": _Loss(2.5)})
    channel.report({"step": 2, "loss": _Loss(2.4)})
    try:
        raise ValueError
    except ValueError:
        channel.flush()
    sent = json.loads(agent_line.recv(4096))
    assert (sent["step"], "loss" in sent) == (2, False)


JAX = """
import json, os, sys
import jax, jax.numpy as jnp
import oarlock
from oarlock.training.saving.session import CheckpointSession
from oarlock.training.task import channel, gpu_values

@jax.jit
def slow(x):
    return jax.lax.fori_loop(0, 200, lambda _, y: y @ x, x).sum()

x = jnp.full((600, 600), 1 / 600)
expected = float(slow(x))  # compiles
me, channel._INTERVAL = oarlock.current(), 0.0
for step in range(1, 41):  # more than JAX lets a program run ahead
    me.report(step, loss=slow(x[:300, :300]))
channel.flush()
channel._RARE = float("inf")  # from now on no report is one that may wait

def is_early(act):  # ever: a busy machine may be late now and then
    for step in range(1, 50):
        loss = slow(x)
        act(step, loss)
        if not loss.is_ready():
            return True

assert is_early(lambda step, loss: me.report(step, loss=loss)), "a report waits"
channel.flush()
assert jax.jit(lambda x: gpu_values.is_awaited(x) or x)(1) == 1, "a traced value has nothing to wait for"

session = CheckpointSession()
session.prepare({"weights": {"w": 1}})
def save(step, loss):
    session.finish()
    assert session.save(step, {"weights": {"w": 1}}, {"loss": loss}, None)
assert is_early(save), "a save waits"
session.finish()
with open(session.folder / session._store.names()[0] / "manifest.json") as file:
    assert json.load(file)["manifest"]["metrics"]["loss"] == expected

lost = slow(x)
lost.block_until_ready()
lost.delete()
save(1000, lost)
session.finish()
session.close()
me.report(1000, loss=lost)
channel.flush()
print(expected)
"""


def test_no_report_and_no_save_waits_for_jax(no_launcher: None, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    ours, theirs = socket.socketpair()
    write(tmp_path / "train.py", JAX)
    with theirs:
        done = subprocess.run(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env={**os.environ, "OARLOCK_FD": str(theirs.fileno()), "JAX_PLATFORMS": "cpu"},
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    reports = [event for event in map(json.loads, read_to_end(ours)) if event["kind"] == "report"]
    end = [event["step"] for event in reports].index(40) + 1
    assert end > 10, f"of 40 steps only {end} were reported"
    assert {event["loss"] for event in reports[end:-1]} == {float(done.stdout)}
    assert reports[-1]["step"] == 1000


FAILS = """
import atexit
import jax, jax.numpy as jnp
import oarlock

atexit.register(print, "cleaned up")
oarlock.current().report(1, loss=jnp.ones(()))
lost = jax.jit(lambda x: x + 1)(1.0)
oarlock.current().report(2, loss=lost)
lost.delete()
raise ValueError("the label file is missing")
"""


def test_a_lost_value_changes_nothing_in_how_a_failed_task_ends(oarlock: Any, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    write(tmp_path / "train.py", FAILS)
    done = oarlock("run", "--set", "limits.restarts=0", "train.py")
    assert done.returncode == 1, done.stderr
    assert "cleaned up" in done.stdout
    assert "ValueError: the label file is missing" in done.stderr
