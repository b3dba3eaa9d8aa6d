"""The agent's side of the zygote: start it, talk to it, bury it."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from oarlock.agent.protocol.spec import Spec
from oarlock.agent.zygote import warm_keeper
from oarlock.system import fd_frames, processes

_PATIENCE = 10.0  # seconds for a zygote told to leave


class ZygoteProcess:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.warm = spec.warm
        self.keep = spec.keep  # seconds for it to stay after the run
        self._can_stay = False
        self._process: subprocess.Popen[bytes] | warm_keeper.Adopted | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_adopted(self) -> bool:
        """Whether its imports are those of an earlier run."""
        return isinstance(self._process, warm_keeper.Adopted)

    @property
    def keeper(self) -> int | None:
        """The process that keeps the imports, or will after the run."""
        if isinstance(self._process, warm_keeper.Adopted):
            return self._process.keeper
        return self.pid if self.keep and self._can_stay else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, env: dict[str, str]) -> None:
        env = {**os.environ, **env, "PATH": _path(), **self.spec.env}
        if self.keep:
            home = Path(self.spec.folder).parents[1]
            self._place = warm_keeper.place(home, self.spec.cwd, self.spec.modules, env, self.spec.network)
            found = warm_keeper.adopt(self._place, self.spec.cwd, env, self.spec.network)
            if found is not None:
                self._process, sock = found
                self._line = fd_frames.Line(sock)
                return
        ours, theirs = socket.socketpair()
        self._line = fd_frames.Line(ours)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    processes.entry("oarlock.agent.zygote.zygote"),
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        prepare = {"cwd": self.spec.cwd, "modules": self.spec.modules, "warm": self.warm}
        self.send({**prepare, "network": self.spec.network})

    @property
    def sock(self) -> socket.socket:
        return self._line.sock

    @property
    def is_behind(self) -> bool:
        """Whether something waits for room to be sent."""
        return self._line.is_behind

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        self._line.send(message, fds)

    def flush(self) -> None:
        self._line.flush()

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """(what it says, whether it is still there)."""
        is_there = self._line.fill()
        messages = [message for message, _ in iter(self._line.take, None)]
        for message in messages:
            if "ready" in message:
                self._can_stay = message["ready"]["warm"] and bool(message["ready"]["modules"])
        return messages, is_there

    def bury(self) -> str:
        """After it died: end the orphans that are now ours, say how it ended. The next one is not kept."""
        assert self._process is not None
        self._line.close()
        code = self._process.wait()
        told = "" if self.is_adopted else f" (exit code {processes.shell_code(code)})"
        processes.end_orphans()
        self.keep = 0.0
        return told

    def close(self) -> None:
        if self._process is None:
            return
        if self.keep and self._can_stay and self._stays():
            return  # and has ended all that was below it
        self._line.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        processes.end_orphans()

    def _stays(self) -> bool:
        self.send({"stay": {"place": str(self._place), "seconds": self.keep}})
        deadline = time.monotonic() + _PATIENCE
        is_there = True
        while is_there and (left := deadline - time.monotonic()) > 0:
            select.select([self.sock], [self.sock] if self.is_behind else [], [], left)
            self.flush()
            messages, is_there = self.receive()
            for message in messages:
                if "staying" in message:
                    return bool(message["staying"])
        return False


def _path() -> str:
    """With this interpreter's own folder: `command: torchrun ...` works in an environment not activated."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    own = str(Path(sys.executable).parent)
    return os.pathsep.join(folders if own in folders else [own, *folders])
