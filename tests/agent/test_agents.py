"""Several agents form one run, each a process here (a pod later)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gangs import STEPS, Gang, is_running, until_gone
from tests.support.members import Leader

Start = Callable[..., Gang]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def agent_of(gang: Gang, task: str) -> int:
    """task -> its zygote -> its agent."""
    return parent(parent(gang.pid(task)))


@pytest.mark.parametrize("machines", [1, 2, 4])
def test_a_gang_over_several_machines(start: Start, tmp_path: Path, machines: int) -> None:
    program = """
print(me.rank, me.world, os.environ['LOCAL_RANK'], os.environ['GROUP_RANK'], flush=True)
while not os.path.exists("go"):  # nobody ends before the others were looked at
    train(1)
"""
    gang = start(STEPS + program, machines=machines, roles={"worker": 4})
    for index in range(4):
        gang.until_step(1, task=f"worker-{index}")
    agents = {agent_of(gang, f"worker-{index}") for index in range(4)}
    assert len(agents) == machines
    (tmp_path / "job" / "go").touch()
    assert gang.end().state == "succeeded", gang.told()
    per_machine = 4 // machines
    assert sorted(gang.lines) == [
        f"worker-{rank}| {rank} 4 {rank % per_machine} {rank // per_machine}" for rank in range(4)
    ]
    until_gone([*agents])


def test_a_task_killed_on_another_machine_restarts_the_gang(start: Start) -> None:
    gang = start(STEPS + "train(20 if me.generation > 1 else 10**6)", machines=2).until_step(
        3, task="worker-1"
    )
    gang.kill("worker-1")
    state = gang.end()
    assert (state.state, state.generation) == ("succeeded", 2), gang.told()
    assert gang.of("restart")[0]["task"] == "worker-1"


def test_a_killed_agent_is_replaced_and_the_gang_restarts(start: Start) -> None:
    gang = start(STEPS + "train(20 if me.generation > 1 else 10**6)", machines=2).until_step(
        3, task="worker-1"
    )
    agent, task = agent_of(gang, "worker-1"), gang.pid("worker-1")
    assert agent != gang.state.agent
    os.kill(agent, signal.SIGKILL)
    until_gone([agent, task])
    state = gang.end()
    assert (state.state, state.generation) == ("succeeded", 2), gang.told()


def test_killing_the_leading_agent_leaves_nobody(start: Start) -> None:
    gang = start(STEPS + "train(10**6)", machines=2).until_step(3, task="worker-1")
    everybody = [gang.pid("worker-0"), gang.pid("worker-1"), agent_of(gang, "worker-1")]
    assert gang.state.agent is not None
    assert all(map(is_running, everybody))
    os.kill(gang.state.agent, signal.SIGKILL)
    until_gone([gang.state.agent, *everybody])
    assert gang.run.state().state == "lost"


def test_an_agent_whose_leader_never_comes_gives_up(tmp_path: Path) -> None:
    leader = Leader(tmp_path, machines=2, rendezvous=1.0)
    leader.close()
    words = [str(leader.folder), "--machine", "1", "--join", "127.0.0.1:1"]
    done = subprocess.run(
        [sys.executable, "-m", "oarlock.agent", *words], capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert b"no coordinator within limits.rendezvous (1 s)" in done.stderr
