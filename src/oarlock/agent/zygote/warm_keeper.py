"""Imports that outlive their run. With `warm: 10m` a zygote stays that long after it and becomes a *keeper*:
the zygote of the next run is a fork of it, and need not import everything again.

If the run used GPUs and left room on them, that zygote is forked at once, with processes that open these GPUs
and stand by for the next run's tasks (`gpu_standby`).

Runs find a keeper at its socket (`warm_socket`, `adopted_zygote`). A keeper ends instead of answering if a
file that it has imported has changed since.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
import types
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from oarlock.agent.zygote.forks import about_to_fork, enter_environment
from oarlock.agent.zygote.gpu_standby import Standbys
from oarlock.agent.zygote.orders import KEEPER_MESSAGES, Forked, ForkRequest, StandBy, StandByNext
from oarlock.agent.zygote.warm_socket import ANSWER, peer
from oarlock.system import fd_frames, private_network, processes


class Begun(NamedTuple):
    """The beginning of a run's zygote: the line to its agent, and what stands by for its tasks."""

    line: socket.socket
    standbys: Standbys


class _Ahead(NamedTuple):
    pid: int
    line: socket.socket  # on which it waits for the request of a run


class Keeper:
    """A zygote after its run: it forks another one for every run that asks."""

    def __init__(self, listener: socket.socket, path: Path, seconds: float, born: float) -> None:
        self.listener = listener
        self.path = path
        self.seconds = seconds
        self.born = born  # when its imports began
        self.zygotes: dict[int, int] = {}  # pidfd -> pid
        self._ahead: _Ahead | None = None  # the next run's zygote; there is none during runs

    def serve(self) -> Begun:
        """Serve until idle for `seconds`, then end. Returns only in forks."""
        _detach()
        until = time.monotonic() + self.seconds
        while self.zygotes or (self._is_open and time.monotonic() < until):
            listeners = [self.listener.fileno()] if self._is_open else []
            patience = None if self.zygotes else max(0.0, until - time.monotonic())
            ready, _, _ = select.select([*listeners, *self.zygotes], [], [], patience)
            for handle in self.zygotes.keys() & set(ready):
                self._bury(handle)
                until = time.monotonic() + self.seconds
            if self._is_open and self.listener.fileno() in ready:
                if _has_changed_since(self.born):
                    self._close()  # this refuses the agent that has connected
                else:
                    begun = self._answer()
                    if begun is not None:
                        return begun
        self._close()
        os._exit(0)

    @property
    def _is_open(self) -> bool:
        return self.listener.fileno() >= 0

    def _close(self) -> None:
        """Unlink first: a keeper that finds the path free binds a socket that this one must not remove."""
        if self._is_open:
            self.path.unlink(missing_ok=True)
            self.listener.close()

    def _answer(self) -> Begun | None:
        caller, _ = self.listener.accept()
        with caller:
            caller.settimeout(ANSWER)
            try:
                if peer(caller) is None:
                    return None
                data, fds = fd_frames.receive(caller)
                request = KEEPER_MESSAGES.from_data(data)
            except (OSError, ValueError):
                return None
            if isinstance(request, ForkRequest) and len(fds) == 3:
                return self._give(request, fds, caller)
        if isinstance(request, StandByNext) and not self.zygotes:  # a run may need that memory
            return self._fork_ahead(request.standbys)
        return None

    def _give(self, request: ForkRequest, fds: Sequence[int], caller: socket.socket) -> Begun | None:
        pid = self._pass_to_ahead(request, fds)
        if pid is None:
            pid = os.fork()
            if pid == 0:
                self._leave()
                processes.adopt_orphans()
                return Begun(_become(request, *fds), Standbys())
        for fd in fds:
            os.close(fd)
        self.zygotes[os.pidfd_open(pid)] = pid
        with suppress(OSError):
            fd_frames.send(caller, KEEPER_MESSAGES.to_data(Forked(pid)))
        return None

    def _pass_to_ahead(self, request: ForkRequest, fds: Sequence[int]) -> int | None:
        if self._ahead is None:
            return None
        try:
            fd_frames.send(self._ahead.line, KEEPER_MESSAGES.to_data(request), tuple(fds))
        except OSError:  # it was killed
            self._end_ahead()
            return None
        pid = self._ahead.pid
        self._ahead.line.close()
        self._ahead = None
        return pid

    def _fork_ahead(self, standbys: Sequence[StandBy]) -> Begun | None:
        self._end_ahead()
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._leave()
            return _wait_for_run(theirs, standbys)
        theirs.close()
        self._ahead = _Ahead(pid, ours)
        return None

    def _end_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.line.close()
            self._ahead = None
            processes.end_orphans(spare=set(self.zygotes.values()))

    def _leave(self) -> None:
        """Close, in a fork, what is the keeper's."""
        self.listener.close()
        for handle in self.zygotes:
            os.close(handle)
        if self._ahead is not None:
            self._ahead.line.close()

    def _bury(self, handle: int) -> None:
        """Drop a zygote that has ended, and end what its tasks left behind: this process adopted them."""
        os.close(handle)
        del self.zygotes[handle]
        processes.end_orphans(spare=set(self.zygotes.values()))


def _detach() -> None:
    os.chdir("/")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    os.close(nowhere)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _wait_for_run(line: socket.socket, orders: Sequence[StandBy]) -> Begun:
    """Fork the standbys and have them open their GPUs; then wait for a run. Ends with the keeper."""
    processes.adopt_orphans()
    standbys = Standbys()
    for order in orders:
        standbys.expect(order)
    with about_to_fork():
        standbys.fork_due(line.close)
    for order in orders:
        standbys.open_gpus(order.task, early=True)
    data, fds = fd_frames.receive(line)
    if data is None:
        os._exit(0)
    line.close()
    request = KEEPER_MESSAGES.from_data(data)
    assert isinstance(request, ForkRequest)
    return Begun(_become(request, *fds), standbys)


def _become(request: ForkRequest, line: int, output: int, errors: int) -> socket.socket:
    """Become the zygote of another run."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    processes.redirect(output, errors)
    enter_environment(request.env)
    os.chdir(request.cwd)
    if request.network == "private":  # the keeper has a private network; this run gets its own
        private_network.enter()
    return socket.socket(fileno=line)


def _has_changed_since(born: float) -> bool:
    """Whether an imported file was edited, or anything was installed, after `born`."""
    modules = [vars(module) for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)]
    files = [str(module.get("__file__")) for module in modules]  # some of these files do not exist
    return any(_changed(path) > born for path in {*sys.path, *files} - {""})


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_ctime  # noqa: PTH116 - a run waits for two thousand: 5 ms, not 15
    except OSError:
        return 0.0
