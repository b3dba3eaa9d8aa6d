"""Imports that outlive their run: with `warm: 10m` a zygote stays for so long after it, and the zygote of the
next run is forked from it instead of importing everything again.

They meet at a socket in a folder beside the runs that only its user can enter: neither other users nor
processes of the same user in a container that does not see the folder. The name of the socket is made of all
that an import may depend on: with another interpreter, folder, variable, limit or control group nobody
answers. Who has imported a file that has changed since leaves instead of answering.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from oarlock.system import fd_frames, private_network, processes

_ANSWER = 2.0  # seconds for one that is there to answer
_DAY = 86400.0
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
# What a terminal or a run changes, and no import looks at. (JAX does look at its folder: see `_become`.)
_PASSING = {"_", "PWD", "OLDPWD", "SHLVL", "TERM", "COLUMNS", "LINES", "WINDOWID"}
_PASSING |= {"TORCHINDUCTOR_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR"}


def place(home: Path, cwd: str, modules: Sequence[str], env: Mapping[str, str], network: str) -> Path:
    """The path of the socket for a run with these imports. `home` is where all runs are recorded."""
    mask = os.umask(0)
    os.umask(mask)
    limits = [
        resource.getrlimit(getattr(resource, key)) for key in dir(resource) if key.startswith("RLIMIT_")
    ]
    depends = [
        [os.getuid(), os.getgid(), os.getgroups(), mask, os.nice(0), sorted(os.sched_getaffinity(0)), limits],
        [
            Path("/proc/self/cgroup").read_text(),
            sys.executable,
            sys.version,
            __file__,
            cwd,
            list(modules),
            network,
        ],
        sorted((key, value) for key, value in env.items() if key not in _PASSING),
    ]
    # Several machines may share the home: the part before the hyphen stands for this one.
    return home / "warm" / f"{_digest(os.uname().nodename)[:8]}-{_digest(json.dumps(depends))[:32]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# The agent's side


class Adopted:
    """A zygote that is not our child: as much of a `Popen` as there can be of it."""

    def __init__(self, pid: int, keeper: int) -> None:
        self.pid = pid
        self.keeper = keeper
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended. Its exit code is its parent's to know."""
        if not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("zygote", timeout or 0)
        return 0

    def kill(self) -> None:
        processes.send(self.pid, signal.SIGKILL)


def adopt(
    place: Path, cwd: str, env: Mapping[str, str], network: str = "shared"
) -> tuple[Adopted, socket.socket] | None:
    """A zygote for this run, and the line to it, from whoever stayed in that place."""
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_ANSWER)
        try:
            with _folder(place.parent) as folder:
                line.connect(f"{folder}/{place.name}")
            keeper = _peer(line)
            if keeper is None:
                raise ConnectionRefusedError("somebody else's")
            asked = {"cwd": cwd, "env": dict(env), "network": network}
            fd_frames.send(line, asked, (theirs.fileno(), 1, 2))
            answer, _ = fd_frames.receive(line)
            if answer is not None:
                return Adopted(answer["pid"], keeper), ours
        except OSError:
            pass
    ours.close()  # and should it answer yet, it finds nobody
    return None


def _peer(line: socket.socket) -> int | None:
    """The process at the other end, if it is the same user's."""
    told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(told)
    return pid if uid == os.getuid() else None


@contextmanager
def _folder(path: Path, make: bool = False) -> Iterator[str]:
    """A short way into the folder, which is closed to others: the path of a socket has at most 107 bytes."""
    if make:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(f"{path} is somebody else's")
        os.fchmod(fd, 0o700)
        if make:
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


# The zygote's side


def claim(place: Path) -> socket.socket | None:
    """The socket in that place, unless somebody else has it, or this system lacks what staying takes."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.close(os.pidfd_open(os.getpid()))
        with _folder(place.parent, make=True) as folder:
            _clean(folder, place.name)
            listener.bind(f"{folder}/{place.name}")
            listener.listen()
    except (AttributeError, OSError):
        listener.close()
        return None
    return listener


def _clean(folder: str, ours: str) -> None:
    """Remove the sockets of keepers that were killed: this machine's at once, those of others after a day.

    One that is removed in error costs the next run its imports, no more.
    """
    machine = ours.partition("-")[0]
    for path in Path(folder).iterdir():
        if path.name.partition("-")[0] != machine and path.lstat().st_mtime > time.time() - _DAY:
            continue
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_ANSWER)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            except OSError:
                pass  # it is there, and busy


class Keeper:
    """A zygote after its run: it forks one for every run that asks."""

    def __init__(self, listener: socket.socket, place: Path, seconds: float, born: float) -> None:
        self.listener = listener
        self.place = place
        self.seconds = seconds
        self.born = born  # when it began to import
        self.zygotes: dict[int, int] = {}  # by their handles

    def serve(self) -> socket.socket:
        """Until nobody has asked for so many seconds. Returns in the forks, with the line to their agent."""
        _detach()
        until = time.monotonic() + self.seconds
        while self.zygotes or (self.is_open and time.monotonic() < until):
            doors = [self.listener.fileno()] if self.is_open else []
            patience = None if self.zygotes else max(0.0, until - time.monotonic())
            ready, _, _ = select.select([*doors, *self.zygotes], [], [], patience)
            for handle in self.zygotes.keys() & set(ready):
                self._bury(handle)
                until = time.monotonic() + self.seconds
            if self.is_open and self.listener.fileno() in ready:
                if _has_changed_since(self.born):
                    self._close()  # who has called is refused
                else:
                    line = self._answer()
                    if line is not None:
                        return line
        self._close()
        os._exit(0)

    @property
    def is_open(self) -> bool:
        return self.listener.fileno() >= 0

    def _close(self) -> None:
        """In this order: who finds the socket gone makes one of its own, which is not ours to remove."""
        if self.is_open:
            self.place.unlink(missing_ok=True)
            self.listener.close()

    def _answer(self) -> socket.socket | None:
        caller, _ = self.listener.accept()
        with caller:
            caller.settimeout(_ANSWER)
            try:
                if _peer(caller) is None:
                    return None
                asked, fds = fd_frames.receive(caller)
            except OSError:
                return None
            if asked is None or len(fds) != 3:
                return None
            pid = os.fork()
            if pid == 0:
                self.listener.close()
                for handle in self.zygotes:
                    os.close(handle)
                return _become(asked, *fds)
            for fd in fds:
                os.close(fd)
            self.zygotes[os.pidfd_open(pid)] = pid
            with suppress(OSError):
                fd_frames.send(caller, {"pid": pid})
        return None

    def _bury(self, handle: int) -> None:
        """What its tasks have left behind came to us."""
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


def _become(asked: Mapping[str, Any], line: int, output: int, errors: int) -> socket.socket:
    """The zygote of another run."""
    processes.adopt_orphans()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    if asked["network"] == "private":  # we are in one; this run gets its own
        private_network.enter()
    jax = sys.modules.get("jax")
    if jax is not None:  # it has read this one for the run that is over
        jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR"))
    return socket.socket(fileno=line)


def _has_changed_since(born: float) -> bool:
    """Whether a file that it has imported was edited since, or anything installed."""
    modules = [vars(module) for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)]
    files = [str(module.get("__file__")) for module in modules]  # some say that they are where nothing is
    return any(_changed(path) > born for path in {*sys.path, *files} - {""})


def _changed(path: str) -> float:
    try:
        return Path(path).stat().st_ctime
    except OSError:
        return 0.0
