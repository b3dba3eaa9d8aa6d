"""Start a zygote. Until it knows its run, it imports what every zygote needs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from oarlock.system import processes


class Spare:
    """A zygote that knows no run yet. `env` is added to this process's environment."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.line, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    processes.entry("oarlock.agent.zygote.zygote"),
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                env={**os.environ, "PATH": search_path(), **(env or {})},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def discard(self) -> None:
        """End it: there is no run for it."""
        self.line.close()
        self.process.kill()
        self.process.wait()


def search_path() -> str:
    """PATH with this interpreter's folder, so that `command: torchrun ...` works in an inactive venv."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    own = str(Path(sys.executable).parent)
    return os.pathsep.join(folders if own in folders else [own, *folders])
