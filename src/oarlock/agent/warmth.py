"""The agent's side of the zygote: start it, talk to it, bury it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from oarlock.agent import frames, processes
from oarlock.agent.spec import Spec

_PATIENCE = 10.0  # seconds for a zygote told to leave


class ZygoteProcess:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.warm = spec.warm
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, env: dict[str, str]) -> None:
        self.sock, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    processes.entry("oarlock.agent.zygote"),
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                env={**os.environ, **env, "PATH": _path(), **self.spec.env},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.send({"cwd": self.spec.cwd, "modules": self.spec.modules, "warm": self.warm})

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        with suppress(ConnectionError):  # its end is noticed on the reading side
            frames.send(self.sock, message, fds)

    def receive(self) -> dict[str, Any] | None:
        return frames.receive(self.sock)[0]

    def bury(self) -> int:
        """After it died: end the orphans that are now ours, say how it ended."""
        assert self._process is not None
        self.sock.close()
        code = processes.shell_code(self._process.wait())
        processes.end_orphans()
        return code

    def close(self) -> None:
        if self._process is None:
            return
        self.sock.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        processes.end_orphans()


def _path() -> str:
    """With this interpreter's own folder: `command: torchrun ...` works in an environment not activated."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    own = str(Path(sys.executable).parent)
    return os.pathsep.join(folders if own in folders else [own, *folders])
