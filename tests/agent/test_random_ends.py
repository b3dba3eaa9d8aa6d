"""Agent, zygote and leading agent killed at random moments, also while they start: nothing is left, the
record tells the truth, and the run goes on."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from pathlib import Path

import pytest

from oarlock.engines.local import local_engine
from oarlock.system import processes
from tests.support.gangs import Gang, until_gone
from tests.support.soaking import moments

MOMENTS = moments(1)
PROGRAM = """
import subprocess, sys, time, oarlock
me = oarlock.current()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
for step in range(1, 10**6 if me.generation == 1 else 20):
    me.report(step)
    time.sleep(0.01)
"""


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("victim", ["leading agent", "other agent", "zygote"])
def test_a_kill_at_any_moment(home: Path, tmp_path: Path, victim: str, moment: int) -> None:
    chance = random.Random(f"{victim} {moment}")
    gang = Gang(tmp_path / "job", PROGRAM, machines=2, limits={"restarts": 5})
    leading = gang.until(lambda gang: gang.state.agent, "agent").state.agent
    assert leading is not None
    everybody = _live_on(gang, leading, chance.uniform(0.0, 0.8))
    pid = _choose(victim, leading)
    if pid is None:
        gang.until_step(1)  # so early that there was none yet
        pid = _choose(victim, leading)
    assert pid is not None
    everybody |= {leading, *processes.descendants(leading)}
    killed_at = time.time()
    os.kill(pid, signal.SIGKILL)
    if victim == "leading agent":
        until_gone([*everybody])
        assert gang.run.state().state == "lost"
        assert not _listens(gang)
        local_engine.resume(gang.run)
    gang.until(lambda gang: gang.state.generation >= 2 or _steps_since(gang, killed_at), "steps")
    if gang.state.generation == 1:  # killed before the first gang had formed
        gang.kill("worker-0")
    state = gang.end()
    assert state.state == "succeeded", gang.told()
    until_gone([*everybody])
    assert not _listens(gang)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_from_the_moment_there_is_an_agent(
    home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    gang = Gang(tmp_path / "job", PROGRAM)
    deadline = time.monotonic() + 60
    while (agent := gang.run.state().agent) is None and time.monotonic() < deadline:
        pass  # as soon as can be
    assert agent is not None
    os.kill(agent, number)
    assert gang.end().state == "stopped", gang.told()


def test_a_stop_reaches_the_agent_that_has_just_taken_over(home: Path, tmp_path: Path) -> None:
    """Not the one before it, which the record still names."""
    gang = Gang(tmp_path / "job", PROGRAM)
    gang.until_step(1)
    local_engine.stop(gang.run)
    gang.end()
    local_engine.resume(gang.run)
    local_engine.stop(gang.run)
    assert gang.end().state == "stopped", gang.told()


def _steps_since(gang: Gang, when: float) -> bool:
    return len([event for event in gang.of("report") if event["t"] > when + 1]) > 3


def _live_on(gang: Gang, leading: int, seconds: float) -> set[int]:
    """A random moment later; every process seen on the way."""
    seen: set[int] = set()
    until = time.monotonic() + seconds

    def passed(_: Gang) -> bool:
        seen.update(processes.descendants(leading))
        return time.monotonic() >= until

    gang.until(passed, "moment")
    return seen


def _choose(victim: str, leading: int) -> int | None:
    if victim == "leading agent":
        return leading
    wanted = "oarlock.agent.__main__" if victim == "other agent" else "oarlock.agent.zygote.zygote"
    for pid in processes.descendants(leading):
        try:
            if wanted.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        except OSError:
            continue
    return None


def _listens(gang: Gang) -> bool:
    try:
        host, port = (gang.run.path / "address").read_text().strip().rsplit(":", 1)
    except FileNotFoundError:
        return False  # killed before it had one
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
