"""The leading agent starts the zygote before it imports most of its own modules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.system import processes
from tests.support.gangs import STEPS, Gang, until_gone

AT_ITS_START = """
import os, sys
from oarlock.agent import __main__ as agent
from oarlock.agent.zygote.handle import ZygoteProcess

def start(zygote, env):
    print(*sys.modules, flush=True)
    os._exit(0)

ZygoteProcess.start = start
agent.main()
"""


def test_it_starts_before_the_rest_of_the_agent_is_imported(tmp_path: Path) -> None:
    spec = Spec(
        run="early",
        folder=str(tmp_path),
        cwd=str(tmp_path),
        program=Program("program", "program.py"),
        sizes={"worker": 1},
        folders={},
    )
    (tmp_path / "agent.json").write_text(spec.to_json())
    done = subprocess.run(
        [sys.executable, "-c", AT_ITS_START, str(tmp_path)], capture_output=True, text=True, check=False
    )
    imported = done.stdout.split()
    assert "oarlock.agent.zygote.handle" in imported, done.stderr
    others = ("oarlock.agent.leader", "oarlock.agent.follower", "oarlock.agent.lead", "oarlock.agent.record")
    assert not {*others} & {*imported}


def test_a_run_has_one(start: Callable[..., Gang]) -> None:
    gang = start(STEPS + "train(10**6)").until_step(3)
    assert gang.state.agent is not None
    assert len(_children(gang.state.agent)) == 1


def test_a_run_that_fails_before_any_task_leaves_none(home: Path, tmp_path: Path) -> None:
    gang = Gang(tmp_path / "job", STEPS + "train(3)", storage={"weights": str(tmp_path / "nowhere")})
    seen: set[int] = set()

    def is_over(gang: Gang) -> bool:
        if gang.state.agent is not None:
            seen.update([gang.state.agent, *processes.descendants(gang.state.agent)])
        return gang.state.is_final

    state = gang.until(is_over, "end").end()
    assert (state.state, state.code) == ("failed", 1), gang.told()
    assert "nowhere" in str(state.reason)
    until_gone([*seen])


def _children(agent: int) -> list[int]:
    """Those that have ended, too: the agent waits for the zygote that it knows."""
    stats = {pid: Path(f"/proc/{pid}/stat").read_text() for pid in processes.descendants(agent)}
    return [pid for pid, stat in stats.items() if stat.rsplit(")", 1)[1].split()[1] == str(agent)]
