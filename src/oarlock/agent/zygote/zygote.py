"""The zygote: a process that imports what the program will need, once, then forks a process per task.

It is the parent of all tasks, warm or not: it starts, signals and reaps them on the agent's orders
(`orders`) and adopts whatever they leave behind. It never starts a framework, only imports it: a CUDA
context or a JAX backend created here would be broken in every child.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from oarlock.agent.zygote import later_imports, preimport, runner, warm_keeper, warm_socket
from oarlock.agent.zygote.forks import IGNORED, about_to_fork
from oarlock.agent.zygote.gpu_standby import Standbys
from oarlock.agent.zygote.orders import (
    ORDERS,
    REPLIES,
    Exit,
    Exited,
    Import,
    Launch,
    Launched,
    MachineUnfit,
    NotLaunched,
    OpenGpus,
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
from oarlock.agent.zygote.spawned_task import spawn
from oarlock.system import fd_frames, private_network, processes
from oarlock.training.frameworks import eager_torch


def main() -> NoReturn:
    """`zygote FD PARENT`: the socket to the agent and the agent's pid."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    # During imports there is nothing to clean up and the socket is not read, so the kernel ends this process
    # with the agent. After them it must live long enough to take its tasks with it.
    processes.die_with_parent()
    if os.getppid() != int(sys.argv[2]):
        os._exit(1)
    processes.adopt_orphans()
    for ignored in IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    again = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}  # see `preimport.start_again`
    data, output = (again["prepare"], []) if again else fd_frames.receive(sock)
    if data is None:
        os._exit(1)
    prepare, skipped = ORDERS.from_data(data), again.get("skipped", [])
    assert isinstance(prepare, Prepare)
    if output:
        processes.redirect(*output)
    os.environ.update(prepare.env)
    if prepare.network == "private":
        _enter_network(sock)
    os.chdir(prepare.cwd)
    born = time.time()
    # No garbage collection during the imports, nor after them: it would visit half a million objects that all
    # stay, for 0.6 of 2.0 s with torch and 0.7 of 2.6 s with TensorFlow, and free two to seven megabytes.
    gc.disable()
    ready: preimport.Unsafe | Ready = Ready(warm=False, why="warm: false")
    if prepare.warm:
        eager_torch.install()
        ready = preimport.import_all(prepare.modules, skipped)
    if isinstance(ready, preimport.Unsafe):
        preimport.start_again(sock, prepare, ready, skipped)
    gc.freeze()  # otherwise the first collection in every child copies all pages that it touches
    gc.enable()
    processes.die_with_parent(0)
    if os.getppid() != int(sys.argv[2]):
        os._exit(1)
    standbys = Standbys()
    while True:
        zygote = _Zygote(fd_frames.FrameSocket(sock), ready, standbys)
        stay = zygote.serve()
        listener = zygote.hand_over(stay)
        keeper = warm_keeper.Keeper(listener, Path(stay.socket_path), stay.seconds, born)
        sock, standbys = keeper.serve()  # this process is now a fork, and the zygote of another run
        ready = replace(ready, seconds=0.0)


class _Zygote:
    """Serves one run: obeys its agent, and reports which tasks have ended."""

    def __init__(self, line: fd_frames.FrameSocket, ready: Ready, standbys: Standbys) -> None:
        self.line = line
        self.warm = ready.warm
        self.later = later_imports.LaterImports(on_done=self._wake_up)
        self.standbys = standbys
        self.alive: set[int] = set()
        self.ended_by_us: set[int] = set()
        self.wake, self.wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.wake_write, False)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._reply(ready)

    def serve(self) -> Stay:
        """Serve until the agent orders this process to stay. Otherwise end with the agent."""
        agent = self.line.sock
        poll = select.poll()  # select() refuses descriptors from 1,024 on, which an agent of many tasks has
        poll.register(self.wake, select.POLLIN)
        while True:
            poll.register(agent, select.POLLIN | (select.POLLOUT if self.line.is_behind else 0))
            ready = dict(poll.poll())
            self.line.flush()
            if self.wake in ready:
                with suppress(BlockingIOError):
                    os.read(self.wake, 4096)
                self._reap()
                self._fork_standbys()
            if ready.get(agent.fileno(), 0) & ~select.POLLOUT:
                is_there = self.line.fill()
                while (taken := self.line.take()) is not None:
                    order, fds = ORDERS.from_data(taken[0]), taken[1]
                    if isinstance(order, Stay):
                        return order
                    self._obey(order, fds)
                if not is_there:
                    self._leave()

    def hand_over(self, stay: Stay) -> socket.socket:
        """End what is left of the run, answer the agent, and return the socket that later runs will find."""
        self._finish_imports()
        self.standbys.end()
        processes.end_orphans()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.close(self.wake)
        os.close(self.wake_write)
        listener = warm_socket.claim(Path(stay.socket_path)) if self.warm else None
        self.line.sock.setblocking(True)
        self._reply(Staying(listener is not None))
        self.line.close()
        if listener is None:
            os._exit(0)
        return listener

    def _obey(self, order: Order, fds: tuple[int, ...]) -> None:
        if isinstance(order, Launch):
            self._launch(order, *fds)
        elif isinstance(order, Signal):
            self._signal(order)
        elif isinstance(order, Import) and self.warm:
            self.later.add(order.modules)
        elif isinstance(order, StandBy):
            self.standbys.expect(order)
            self._fork_standbys()
        elif isinstance(order, OpenGpus):
            self.standbys.open_gpus(order.task, early=order.early)
        elif isinstance(order, Sweep):
            # A commit is fenced and locked (`checkpoints/store.py`): waiting for a killed writer is needless.
            processes.end_orphans(unawaited=processes.WRITER)
            self._reply(Swept())

    def _reply(self, reply: Reply) -> None:
        self.line.send(REPLIES.to_data(reply))

    def _launch(self, launch: Launch, *fds: int) -> None:
        self._finish_imports()
        if not self._forks(launch):
            self.standbys.dismiss(launch.task)
        pid = self.standbys.take(launch, fds)
        if pid is None:
            pid = self._fork(launch, *fds)
        for fd in fds:
            os.close(fd)
        if pid is not None:
            self.alive.add(pid)
            self._reply(Launched(launch.task, pid))

    def _forks(self, launch: Launch) -> bool:
        return self.warm and launch.program.kind != "command"

    def _fork(self, launch: Launch, *fds: int) -> int | None:
        with about_to_fork():
            try:
                pid = os.fork()
            except OSError as error:
                self._reply(NotLaunched(launch.task, error.errno or 0))
                return None
            if pid == 0:
                try:
                    self._close_in_child()
                    if self._forks(launch):
                        runner.run(launch, *fds)
                    spawn(launch, *fds)
                finally:
                    os._exit(70)
        return pid

    def _close_in_child(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self.wake)
        os.close(self.wake_write)
        self.line.close()
        self.standbys.close_in_child()

    def _fork_standbys(self) -> None:
        """Fork the standbys that are due, but not during imports: the forks would have half of them."""
        if not self.standbys.due or self.later.is_importing:
            return
        self._finish_imports()
        if self.warm:
            with about_to_fork():
                self.standbys.fork_due(self._close_in_child)

    def _wake_up(self) -> None:
        with suppress(BlockingIOError):  # it is full, so the loop wakes up anyway
            os.write(self.wake_write, b"\0")

    def _finish_imports(self) -> None:
        """Finish the imports before a fork. If one of them makes forks unsafe, spawn tasks from now on."""
        self.later.finish()
        self.warm = self.warm and self.later.why_not is None

    def _signal(self, order: Signal) -> None:
        """Signal tasks, but no pid that may be another process's now. A dying task did not die of this."""
        self._reap()
        for pid in self.alive.intersection(order.pids):
            if order.ours and not processes.is_dying(pid):
                self.ended_by_us.add(pid)
            processes.send_group(pid, order.number)
        self._reply(Signaled())

    def _reap(self) -> None:
        """Reply with all dead tasks at once: the order in which they are reaped means nothing."""
        exits = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self.standbys.reaped(pid)
            if pid in self.alive:
                self.alive.discard(pid)
                exits.append(Exit(pid, status, pid in self.ended_by_us))
                self.ended_by_us.discard(pid)
        if exits:
            self._reply(Exited(tuple(exits)))

    def _leave(self) -> NoReturn:
        """End all tasks and this process: the agent is gone, and no task may outlive it."""
        self.standbys.end()
        processes.end_orphans()
        os._exit(0)


def _enter_network(sock: socket.socket) -> None:
    """Move into a network of the run's own. A run that asks for one does not start without it."""
    try:
        private_network.enter()
    except OSError as problem:
        why = problem.strerror or problem
        refused = MachineUnfit(f"this machine does not allow network: private ({why})")
        fd_frames.send(sock, REPLIES.to_data(refused))
        os._exit(1)


if __name__ == "__main__":
    main()
