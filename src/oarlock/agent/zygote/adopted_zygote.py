"""A run's way to a keeper (`warm_keeper`): the zygote that it gets, and what it leaves for the next run."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from oarlock.agent.zygote.orders import KEEPER_MESSAGES, Forked, ForkRequest, StandBy, StandByNext
from oarlock.agent.zygote.warm_socket import ANSWER, peer, short_folder
from oarlock.system import fd_frames


class Adopted:
    """A zygote that is a keeper's child, with the part of `Popen` that works for another process's child."""

    def __init__(self, pid: int, keeper: int) -> None:
        self.pid = pid
        self.keeper = keeper
        self._handle = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Only its parent gets its exit code; this returns 0."""
        if not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("zygote", timeout or 0)
        return 0

    def kill(self) -> None:
        """Send SIGKILL if the process still exists."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)


def adopt(
    path: Path, cwd: str, env: Mapping[str, str], network: str = "shared"
) -> tuple[Adopted, socket.socket] | None:
    """Get a zygote for this run from the keeper at that socket, and the line to it; None if there is none."""
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX) as line:
        try:
            keeper = _connect(line, path)
            request = KEEPER_MESSAGES.to_data(ForkRequest(cwd, dict(env), network))
            fd_frames.send(line, request, (theirs.fileno(), 1, 2))
            data, _ = fd_frames.receive(line)
            if data is not None:
                answer = KEEPER_MESSAGES.from_data(data)
                assert isinstance(answer, Forked)
                return Adopted(answer.pid, keeper), ours
        except OSError:
            pass
    ours.close()  # a zygote that is forked too late finds that its agent is gone
    return None


def prepare_next(path: Path, standbys: Sequence[StandBy]) -> None:
    """Let the keeper at that socket have these GPUs open when the next run asks. It may refuse."""
    with socket.socket(socket.AF_UNIX) as line, suppress(OSError):
        _connect(line, path)
        fd_frames.send(line, KEEPER_MESSAGES.to_data(StandByNext(tuple(standbys))))


def _connect(line: socket.socket, path: Path) -> int:
    """Connect to the keeper there, and return its pid. Raises OSError if there is none of this user's."""
    line.settimeout(ANSWER)
    with short_folder(path.parent) as folder:
        line.connect(f"{folder}/{path.name}")
    keeper = peer(line)
    if keeper is None:
        raise ConnectionRefusedError("another user's process")
    return keeper
