"""The zygote: imports what the program will need, once, then forks a process per task.

It is the parent of all tasks, warm or not: it starts, signals and reaps them on the agent's word
and adopts whatever they leave behind. It never starts a framework, only imports it: a CUDA
context or a JAX backend made here would be broken in every child.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from oarlock.agent.zygote import runner, warm_keeper
from oarlock.system import fd_frames, private_network, processes

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the agent decides when tasks end


def main() -> NoReturn:
    """`zygote FD PARENT`: the socket to the agent and the agent's pid."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    # While importing there is nothing to clean up and nobody reads the socket: let the kernel
    # end us with the agent. Afterwards we must live long enough to take our tasks with us.
    processes.die_with_parent()
    if os.getppid() != int(sys.argv[2]):
        os._exit(1)
    processes.adopt_orphans()
    for ignored in _IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    prepare, _ = fd_frames.receive(sock)
    if prepare is None:
        os._exit(1)
    if prepare["network"] == "private":
        _enter_network(sock)
    os.chdir(prepare["cwd"])
    born = time.time()
    # No collection while importing, nor after it: it would look at half a million objects that all stay, for
    # 0.6 of 2.0 s with torch and 0.7 of 2.6 s with TensorFlow, to find two to seven megabytes.
    gc.disable()
    ready = _import(prepare["modules"]) if prepare["warm"] else _cold()
    gc.freeze()  # or the first collection in every child copies all pages it touches
    gc.enable()
    processes.die_with_parent(0)
    if os.getppid() != int(sys.argv[2]):
        os._exit(1)
    while True:
        line = fd_frames.Line(sock)
        line.send({"ready": ready})
        stay = _Zygote(line, warm=ready["warm"]).serve()
        keeper = warm_keeper.Keeper(stay.listener, stay.place, stay.seconds, born)
        sock = keeper.serve()  # from here on for another run
        ready = {**ready, "seconds": 0.0}


@dataclass(frozen=True)
class _Stay:
    listener: socket.socket
    place: Path
    seconds: float


class _Zygote:
    def __init__(self, line: fd_frames.Line, warm: bool) -> None:
        self.line = line
        self.warm = warm
        self.alive: set[int] = set()
        self.ended_by_us: set[int] = set()
        self.wake, self.wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.wake_write, False)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> _Stay:
        """Until the agent is gone, or tells us to stay without it."""
        agent = self.line.sock
        while True:
            behind = [agent] if self.line.is_behind else []
            readable, writable, _ = select.select([agent.fileno(), self.wake], behind, [])
            if writable:
                self.line.flush()
            if self.wake in readable:
                with suppress(BlockingIOError):
                    os.read(self.wake, 4096)
                self._reap()
            if agent.fileno() in readable:
                is_there = self.line.fill()
                while (taken := self.line.take()) is not None:
                    message, fds = taken
                    if "stay" in message:
                        return self._stay(**message["stay"])
                    self._obey(message, fds)
                if not is_there:
                    self._leave()

    def _obey(self, message: dict[str, Any], fds: tuple[int, ...]) -> None:
        if "launch" in message:
            self._launch(message["launch"], *fds)
        elif "signal" in message:
            self._signal(message["signal"], message["pids"], message["ours"])
        elif "sweep" in message:
            processes.end_orphans()
            self.line.send({"swept": True})

    def _launch(self, launch: dict[str, Any], output: int, events: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        # The child ignores these as we do until it has settled. Blocked, a stop that comes before that waits;
        # it used to get lost, and the task was killed only after its whole grace.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.close(output)
            os.close(events)
            self.line.send({"failed": launch["task"], "errno": error.errno})
            return
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                os.close(self.wake)
                os.close(self.wake_write)
                self.line.close()
                if self.warm and launch["program"]["kind"] != "command":
                    runner.run(launch, output, events)
                _spawn(launch, output, events)
            finally:
                os._exit(70)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        self.alive.add(pid)
        os.close(output)
        os.close(events)
        self.line.send({"launched": launch["task"], "pid": pid})

    def _signal(self, number: int, pids: list[int], ours: bool) -> None:
        """Never to a pid that may be somebody else's by now; and who is dying did not die of this signal."""
        self._reap()
        for pid in self.alive.intersection(pids):
            if ours and not processes.is_dying(pid):
                self.ended_by_us.add(pid)
            processes.send_group(pid, number)

    def _reap(self) -> None:
        """All that are dead in one message: the order in which they are found says nothing."""
        exits = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self.alive:
                self.alive.discard(pid)
                exits.append((pid, status, pid in self.ended_by_us))
                self.ended_by_us.discard(pid)
        if exits:
            self.line.send({"exited": exits})

    def _stay(self, place: str, seconds: float) -> _Stay:
        processes.end_orphans()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.close(self.wake)
        os.close(self.wake_write)
        listener = warm_keeper.claim(Path(place)) if self.warm else None
        self.line.sock.setblocking(True)
        self.line.send({"staying": listener is not None})
        self.line.close()
        if listener is None:
            os._exit(0)
        return _Stay(listener, Path(place), seconds)

    def _leave(self) -> NoReturn:
        """The agent is gone: nobody may outlive it."""
        processes.end_orphans()
        os._exit(0)


def _enter_network(sock: socket.socket) -> None:
    """One of the run's own. A run that asked for it does not start without it."""
    try:
        private_network.enter()
    except OSError as problem:
        why = problem.strerror or problem
        fd_frames.send(sock, {"refused": f"this machine does not allow network: private ({why})"})
        os._exit(1)


def _import(modules: Sequence[str]) -> dict[str, Any]:
    """Import what will be needed. A module that fails is left to the program: its error, its traceback."""
    began = time.monotonic()
    imported, skipped = [], []
    for name in modules:
        try:
            importlib.import_module(name)
            imported.append(name)
        except Exception as error:
            skipped.append(f"{name}: {error}")
    why = _not_forkable()
    return {
        "warm": why is None,
        "why": why,
        "modules": imported,
        "skipped": skipped,
        "seconds": round(time.monotonic() - began, 3),
    }


def _cold() -> dict[str, Any]:
    return {"warm": False, "why": "warm: false"}


def _not_forkable() -> str | None:
    """Some imports start a device behind our back; a child that inherits one is broken."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "importing the program's modules initialised CUDA"
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and getattr(bridge, "_backends", None):
        return "importing the program's modules initialised a JAX backend"
    return None


def _spawn(launch: dict[str, Any], output: int, events: int) -> NoReturn:
    """A new interpreter (or the user's command) instead of a fork of this one."""
    runner.settle(launch, output, events)
    os.set_inheritable(events, True)
    program = launch["program"]
    if program["kind"] == "command":
        runner.adopt_environment(launch, events)
        words = [*program["target"], *program["args"]]
        try:
            os.execvp(words[0], words)
        except OSError as error:
            print(f"oarlock: cannot start {words[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    with tempfile.TemporaryFile() as letter:  # as large as it needs to be, unlike arguments and pipes
        letter.write(json.dumps(launch).encode())
        letter.flush()
        os.set_inheritable(letter.fileno(), True)
        start = processes.entry("oarlock.agent.zygote.runner")
        os.execv(sys.executable, [sys.executable, "-u", "-c", start, str(letter.fileno()), str(events)])


if __name__ == "__main__":
    main()
