"""The agent's side of the zygote: start or adopt one, send it orders, receive its replies, end it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from oarlock.agent.protocol.spec import Spec
from oarlock.agent.zygote import adopted_zygote, warm_socket
from oarlock.agent.zygote.orders import (
    ORDERS,
    REPLIES,
    Launch,
    Launched,
    NotLaunched,
    Order,
    Prepare,
    Ready,
    Reply,
    Signal,
    Signaled,
    StandBy,
    Stay,
    Staying,
    Sweep,
    Swept,
)
from oarlock.agent.zygote.spare import Spare, search_path
from oarlock.system import fd_frames, processes

_PATIENCE = 10.0  # seconds for a zygote to end
_DYING = 2.0  # seconds for a zygote to die once its socket has closed: the agent waits for it
_ANSWERED = (Launch, Signal, Sweep)  # orders that get one answer each, one of `_ANSWERS`
_ANSWERS = (Launched, NotLaunched, Signaled, Swept)


class ZygoteProcess:
    """The zygote of one run, a child of this agent or adopted from an earlier run."""

    def __init__(self, spec: Spec, spare: Spare | None = None) -> None:
        self.spec = spec
        self._spare = spare
        self.warm = spec.warm
        self.keep = spec.keep  # seconds for which its imports stay after the run
        self._can_stay = False
        self._is_ready = False
        self._unanswered = 0  # orders
        self._process: subprocess.Popen[bytes] | adopted_zygote.Adopted | None = None

    @property
    def pid(self) -> int:
        """Its pid, which tasks compare with their parent's pid."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_adopted(self) -> bool:
        """Whether an earlier run did its imports."""
        return isinstance(self._process, adopted_zygote.Adopted)

    @property
    def keeper(self) -> int | None:
        """The process that keeps the imports now, or will after the run."""
        if isinstance(self._process, adopted_zygote.Adopted):
            return self._process.keeper
        return self.pid if self.keep and self._can_stay else None

    @property
    def keeps_gpus(self) -> bool:
        """Whether GPUs may stay open with the imports. A run in a network of its own starts all processes."""
        return self.keeper is not None and self.spec.network != "private"

    def start(self, env: dict[str, str]) -> None:
        """Adopt a zygote that stayed after an earlier run, or start one. `env`: import-time variables."""
        env = {**os.environ, "PATH": search_path(), **env, **self.spec.env}
        self._is_ready, self._unanswered = False, 0
        if self.keep:
            home = Path(self.spec.folder).parents[1]
            spec = self.spec
            self._socket_path = warm_socket.socket_path(home, spec.cwd, spec.modules, env, spec.network)
            adopted = adopted_zygote.adopt(self._socket_path, spec.cwd, env, spec.network)
            if adopted is not None:
                self._process, sock = adopted
                self._line = fd_frames.FrameSocket(sock)
                self._discard_spare()
                return
        if self.spec.env:  # the interpreter itself may read one of these, and only at its start
            self._discard_spare()
        started, self._spare = self._spare or Spare(env), None
        self._process, self._line = started.process, fd_frames.FrameSocket(started.line)
        processes.spare(self._process.pid)
        added = dict(env.items() - os.environ.items())
        order = Prepare(self.spec.cwd, added, tuple(self.spec.modules), self.warm, self.spec.network)
        self.send(order, (1, 2))

    def _discard_spare(self) -> None:
        if self._spare is not None:
            self._spare.discard()
        self._spare = None

    @property
    def sock(self) -> socket.socket:
        """The socket to the zygote, for the loop to watch."""
        return self._line.sock

    @property
    def is_behind(self) -> bool:
        """Whether orders wait for room in the socket."""
        return self._line.is_behind

    @property
    def owes_answer(self) -> bool:
        """Whether it still owes an answer to an order."""
        return self._unanswered > 0

    def send(self, order: Order, fds: tuple[int, ...] = ()) -> None:
        """Send an order as soon as there is room. The caller keeps the descriptors, to close at once."""
        self._unanswered += isinstance(order, _ANSWERED)
        self._line.send(ORDERS.to_data(order), fds)

    def flush(self) -> None:
        """Send as much as there is room for."""
        self._line.flush()

    def receive(self) -> tuple[list[Reply], bool]:
        """The replies that have arrived, and whether the zygote is still there."""
        is_there = self._line.fill()
        replies = [REPLIES.from_data(data) for data, _ in iter(self._line.take, None)]
        for reply in replies:
            self._unanswered -= isinstance(reply, _ANSWERS)
            if isinstance(reply, Ready):
                self._is_ready = True
                self._can_stay = reply.warm and bool(reply.modules)
        return replies, is_there

    def kill(self) -> None:
        """Send it SIGKILL; the loop notices the end."""
        assert self._process is not None
        self._process.kill()

    def bury(self) -> str:
        """Clean up after it died or closed its socket. Returns how it ended, in words.

        Ends its orphans, which this agent has adopted. The next zygote does not keep its imports.
        """
        self._line.close()
        code = self._end(_DYING)
        processes.release(self.pid)
        processes.end_orphans()
        self.keep = 0.0
        return "" if self.is_adopted else f" (exit code {processes.shell_code(code)})"

    def close(self, standbys: Sequence[StandBy] = ()) -> None:
        """At the end of the run, let the zygote stay if it can. Otherwise end it with all its descendants.

        `standbys`: those that the next run would like to find, if the imports stay.
        """
        if self._process is None:
            return
        if not (self.keep and self._can_stay and self._stays()):  # if so, it ends its descendants itself
            self._close()
        if standbys:
            adopted_zygote.prepare_next(self._socket_path, standbys)

    def _close(self) -> None:
        self._line.close()
        self._end(
            _PATIENCE if self._is_ready else 0.0
        )  # during imports it does not notice that its line is closed
        processes.release(self.pid)
        processes.end_orphans()

    def _end(self, patience: float) -> int:
        """Wait until it ends, kill it after `patience`, and return its exit code."""
        assert self._process is not None
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
        try:
            return self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL  # the kernel keeps it, as in a hung file system: continue without it

    def _stays(self) -> bool:
        self.send(Stay(str(self._socket_path), self.keep))
        deadline = time.monotonic() + _PATIENCE
        is_there = True
        while is_there and (left := deadline - time.monotonic()) > 0:
            select.select([self.sock], [self.sock] if self.is_behind else [], [], left)
            self.flush()
            replies, is_there = self.receive()
            for reply in replies:
                if isinstance(reply, Staying):
                    return reply.stays
        return False
