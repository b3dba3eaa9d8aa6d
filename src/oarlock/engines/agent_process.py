"""Start the agent of a run: a process that outlives the client.

It starts before the run is known if the client says so (`expect`): an agent and its zygote need 0.1 s for
that, and so does a client that reads a job.
"""

from __future__ import annotations

import atexit
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from oarlock.system import fd_frames, processes

if TYPE_CHECKING:
    from oarlock.records.run_folder import RunFolder

_PATIENCE = 30.0  # seconds for an agent without a run to end

_waiting: list[_Agent] = []  # for their run
_leading: list[subprocess.Popen[bytes]] = []  # started by this client: kept only to be reaped


def expect() -> None:
    """Start an agent for the run that this client will start. Without a run, it ends with this client."""
    with suppress(OSError):  # `start` says what is wrong
        _waiting.append(_Agent())
    atexit.register(_dismiss)


def start(run: RunFolder, held: int, stdin: int | None) -> None:
    """Have an agent lead the run. It gets the lock, and `stdin` for the leader task."""
    _leading[:] = [process for process in _leading if process.poll() is None]
    with run.agent_log.open("ab") as log:
        fds = (log.fileno(), held, *(() if stdin is None else (stdin,)))
        while _waiting:
            with suppress(OSError):  # it was killed
                _waiting.pop().lead(run, fds)
                return
        _Agent(log.fileno()).lead(run, fds)


def _dismiss() -> None:
    while _waiting:
        _waiting.pop().dismiss()


class _Agent:
    """A process in a session of its own, and the line that brings it a run."""

    def __init__(self, output: int = subprocess.DEVNULL) -> None:
        self.line, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                # -S: it imports no installed package, and what those run in every interpreter may take long.
                [sys.executable, "-S", "-c", processes.entry("oarlock.agent.early"), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        _leading.append(self.process)

    def lead(self, run: RunFolder, fds: tuple[int, ...]) -> None:
        with self.line:
            fd_frames.send(self.line, {"folder": str(run.path)}, fds)

    def dismiss(self) -> None:
        self.line.close()
        processes.await_end(self.process, _PATIENCE)
