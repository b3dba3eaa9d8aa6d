"""Stands by for a task on a GPU: a process that becomes the task's next one.

It starts CUDA's driver while the task runs (0.1 s and 3 MiB of an H200). It opens the task's GPUs (0.5 GiB
of each) when the agent says so: while the task runs if they have room for that, otherwise when the task dies.
Then it takes 0.1 to 0.3 s, because the driver is freeing what the task had. No framework is initialized, and
the driver only if the program would do so itself (`program_gpus`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

from oarlock.agent.zygote import runner
from oarlock.agent.zygote.orders import ORDERS, Launch, StandBy
from oarlock.agent.zygote.program_gpus import LOADING, deciding
from oarlock.system import fd_frames, processes
from oarlock.system.gpus import cuda_driver

_OPENING = 2.0  # seconds that a launch waits for the GPUs to be open
_OPEN, _IS_OPEN = b"?", b"!"
_FAILED = 70  # like other tasks that could not begin; only read if it has become one


class _Standby(NamedTuple):
    pid: int
    sock: socket.socket
    variables: dict[str, str]


class Standbys:
    """The standbys of one zygote, by task name. `due`: those that are still to be forked."""

    def __init__(self) -> None:
        self.due: dict[str, StandBy] = {}
        self._waiting: dict[str, _Standby] = {}
        self._opening: set[str] = set()  # those that are to open their GPUs, or have opened them

    def expect(self, order: StandBy) -> None:
        """From now on there is another standby for this task to be forked, or none."""
        self.dismiss(order.task)
        if order.gpus:
            self.due[order.task] = order

    def fork_due(self, leave_zygote: Callable[[], None]) -> None:
        """Fork those that are due. Each first calls `leave_zygote`."""
        while self.due:
            self._fork(self.due.popitem()[1], leave_zygote)

    def _fork(self, order: StandBy, leave_zygote: Callable[[], None]) -> None:
        """There is none if the system refuses a process."""
        zygote = os.getpid()
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            return
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                return
            if pid == 0:
                try:
                    ours.close()
                    leave_zygote()
                    _stand_by(order, theirs, zygote)
                finally:
                    os._exit(_FAILED)
        processes.spare(pid)
        self._waiting[order.task] = _Standby(pid, ours, order.env)
        if order.task in self._opening:
            self._tell_to_open(order.task)

    def open_gpus(self, task: str) -> None:
        """Let this task's standby open its GPUs, unless it has: now, or when it is forked."""
        if task in self._opening:
            return
        if task in self._waiting:
            self._tell_to_open(task)
        if task in self._waiting or task in self.due:
            self._opening.add(task)

    def _tell_to_open(self, task: str) -> None:
        with suppress(OSError):  # it has ended: the reaper finds it, and the launch
            self._waiting[task].sock.send(_OPEN)

    def take(self, launch: Launch, fds: tuple[int, ...]) -> int | None:
        """Turn this task's standby into the task and return its pid; None if no standby can do that."""
        standby = self._waiting.get(launch.task)
        if standby is None:
            self.dismiss(launch.task)  # what imports have held up is too late now
            return None
        if standby.variables != deciding(launch.env):
            self.dismiss(launch.task)
            return None
        self.open_gpus(launch.task)
        if not _is_ready(standby.sock):
            self.end()  # the driver hangs, or is busy: every task would wait that long
            return None
        try:
            fd_frames.send(standby.sock, ORDERS.to_data(launch), fds)
        except OSError:
            self.dismiss(launch.task)
            return None
        self._forget(launch.task)
        return standby.pid

    def reaped(self, pid: int) -> None:
        """A standby has ended by itself. Its pid may belong to another process from now on."""
        for task, standby in list(self._waiting.items()):
            if standby.pid == pid:
                self._forget(task)

    def dismiss(self, task: str) -> None:
        """Kill this task's standby, if there is one. The reaper of orphans reaps it."""
        standby = self._waiting.get(task)
        if standby is not None:
            processes.send(standby.pid, signal.SIGKILL)
            self._forget(task)
        self.due.pop(task, None)
        self._opening.discard(task)

    def close_in_child(self) -> None:
        """Close, in a fork, the sockets of the standbys: they are the zygote's."""
        for standby in self._waiting.values():
            standby.sock.close()

    def end(self) -> None:
        """Dismiss all standbys."""
        for task in list(self._waiting):
            self.dismiss(task)

    def _forget(self, task: str) -> None:
        standby = self._waiting.pop(task)
        self._opening.discard(task)
        standby.sock.close()
        processes.release(standby.pid)


def _is_ready(sock: socket.socket) -> bool:
    if not select.select([sock], [], [], _OPENING)[0]:
        return False
    try:
        return sock.recv(1) == _IS_OPEN
    except OSError:
        return False


def _stand_by(order: StandBy, sock: socket.socket, zygote: int) -> NoReturn:
    processes.die_with_parent()
    if os.getppid() != zygote:
        os._exit(_FAILED)
    # Make room for high descriptors now: once the driver has threads here, that takes the kernel 50 ms.
    sock = socket.socket(fileno=processes.raised(sock.detach()))
    os.environ.update(order.env)
    if "torch" in sys.modules:  # torch does this itself up to 2.9, before it starts the driver
        os.environ.setdefault(LOADING, "LAZY")
    if cuda_driver.start() is None or sock.recv(1) != _OPEN or not cuda_driver.open_contexts(order.gpus):
        os._exit(_FAILED)
    sock.send(_IS_OPEN)
    data, fds = fd_frames.receive(sock)
    if data is not None:
        launch = ORDERS.from_data(data)
        assert isinstance(launch, Launch)
        sock.close()
        runner.run(launch, *fds)
    os._exit(_FAILED)
