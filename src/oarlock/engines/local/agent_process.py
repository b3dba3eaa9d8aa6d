"""Start the agent of a run: a process that outlives the client."""

from __future__ import annotations

import subprocess
import sys

from oarlock.records.run_folder import RunFolder
from oarlock.system import processes

_agents: list[subprocess.Popen[bytes]] = []  # started by this client: kept only to be reaped


def start(run: RunFolder, held: int, stdin: int | None) -> None:
    """Start it in a session of its own; it inherits the lock, and `stdin` for the leader task."""
    _agents[:] = [agent for agent in _agents if agent.poll() is None]
    words = [sys.executable, "-c", processes.entry("oarlock.agent.__main__"), str(run.path)]
    with run.agent_log.open("ab") as log:
        agent = subprocess.Popen(
            [*words, *(["--stdin"] if stdin is not None else [])],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=log,
            stderr=log,
            pass_fds=[held],
            start_new_session=True,
        )
    _agents.append(agent)
