"""Stands by for a task on a GPU: a process that becomes the task's next one.

It starts CUDA's driver while the task runs (0.1 s and 3 MiB of an H200). It opens the task's GPUs (0.5 GiB
of each) when the agent says so: while the task runs if they have room for that, otherwise when the task dies.
Then it takes 0.1 to 0.3 s, because the driver is freeing what the task had. With `warm: 10m` such processes
also stand by for the next run (`warm_keeper`). No framework is initialized, and the driver only if the
program would do so itself (`program_gpus`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, NoReturn

from oarlock.agent.task_side.program_gpus import LOADING, deciding
from oarlock.agent.zygote import runner
from oarlock.agent.zygote.forks import enter_environment
from oarlock.agent.zygote.orders import ORDERS, Launch, StandBy
from oarlock.system import fd_frames, processes
from oarlock.system.gpus import cublas, cuda_driver

_OPENING = 2.0  # seconds that a launch waits for the GPUs to be open
_OPEN, _OPEN_EARLY, _IS_OPEN = b"?", b"+", b"!"
_FAILED = 70  # like other tasks that could not begin; only read if it has become one


class _Standby(NamedTuple):
    pid: int
    sock: socket.socket
    order: StandBy

    def suits(self, launch: Launch) -> bool:
        """Whether its GPUs are those that this program would open, too."""
        return (self.order.program, self.order.env) == (str(launch.program.target), deciding(launch.env))


class Standbys:
    """The standbys of one zygote, by task name. `due`: those that are still to be forked."""

    def __init__(self) -> None:
        self.due: dict[str, StandBy] = {}
        self._waiting: dict[str, _Standby] = {}
        self._opening: dict[str, bool] = {}  # those that are to open their GPUs, or have; whether early

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
        self._waiting[order.task] = _Standby(pid, ours, order)
        if order.task in self._opening:
            self._tell_to_open(order.task, self._opening[order.task])

    def open_gpus(self, task: str, *, early: bool = False) -> None:
        """Let this task's standby open its GPUs, unless it has: now, or when it is forked.

        `early`: it has time to load what the task will need there.
        """
        if task in self._opening:
            return
        if task in self._waiting:
            self._tell_to_open(task, early)
        if task in self._waiting or task in self.due:
            self._opening[task] = early

    def _tell_to_open(self, task: str, early: bool) -> None:
        with suppress(OSError):  # it has ended: the reaper finds it, and the launch
            self._waiting[task].sock.send(_OPEN_EARLY if early else _OPEN)

    def take(self, launch: Launch, fds: tuple[int, ...]) -> int | None:
        """Turn this task's standby into the task and return its pid; None if no standby can do that."""
        standby = self._waiting.get(launch.task)
        if standby is None:
            self.dismiss(launch.task)  # what imports have held up is too late now
            return None
        if not standby.suits(launch):
            self.dismiss(launch.task)
            return None
        self.open_gpus(launch.task)
        if not _is_ready(standby.sock):
            self.end()  # the driver hangs, or is busy: every task would wait that long
            return None
        try:
            # It may have been forked for an earlier run, with the environment of that.
            whole = replace(launch, env={**os.environ, **launch.env})
            fd_frames.send(standby.sock, ORDERS.to_data(whole), fds)
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
        self._opening.pop(task, None)

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
        self._opening.pop(task, None)
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
    asked = b"" if cuda_driver.start() is None else sock.recv(1)
    if not asked or not cuda_driver.open_contexts(order.gpus):
        os._exit(_FAILED)
    for gpu in order.gpus if asked == _OPEN_EARLY else ():
        cublas.multiply_once(gpu)
    sock.send(_IS_OPEN)
    data, fds = fd_frames.receive(sock)
    if data is not None:
        launch = ORDERS.from_data(data)
        assert isinstance(launch, Launch)
        sock.close()
        enter_environment(launch.env)
        runner.run(launch, *fds)
    os._exit(_FAILED)
