"""Imports that outlive their run. With `warm: 10m` a zygote stays that long after it and becomes a *keeper*:
the zygote of the next run is a fork of it, and need not import everything again.

They meet at a socket in a folder next to the runs that only its user can enter. Other users have no access,
nor have the user's processes in a container that does not see the folder. The socket's name is a digest of
all that an import may depend on: another interpreter, folder, variable, limit or control group has no such
socket. A keeper ends instead of answering if a file that it has imported has changed since.
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

from oarlock.agent.zygote import compile_cache
from oarlock.agent.zygote.orders import KEEPER_MESSAGES, Forked, ForkRequest
from oarlock.system import fd_frames, private_network, processes

_ANSWER = 2.0  # seconds for a keeper to answer
_DAY = 86400.0
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
# Variables that differ between terminals or runs and that no import reads. (Except in JAX: see `_become`.)
_PASSING = {"_", "PWD", "OLDPWD", "SHLVL", "TERM", "COLUMNS", "LINES", "WINDOWID"}
_PASSING |= compile_cache.FOLDERS.keys()


def socket_path(home: Path, cwd: str, modules: Sequence[str], env: Mapping[str, str], network: str) -> Path:
    """Where a run with these imports looks for a keeper. `home` is the folder of all run records."""
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
    # Several machines may share the home: the part before the hyphen identifies this one.
    return home / "warm" / f"{_digest(os.uname().nodename)[:8]}-{_digest(json.dumps(depends))[:32]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# The agent's side


class Adopted:
    """A zygote that is a keeper's child, with the part of `Popen` that works for another process's child."""

    def __init__(self, pid: int, keeper: int) -> None:
        self.pid = pid
        self.keeper = keeper
        self._handle = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Only its parent gets its exit code; this returns 0."""
        if not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("zygote", timeout or 0)
        return 0

    def kill(self) -> None:
        """Send SIGKILL if the process still exists."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)


def adopt(
    path: Path, cwd: str, env: Mapping[str, str], network: str = "shared"
) -> tuple[Adopted, socket.socket] | None:
    """Get a zygote for this run from the keeper at that socket, and the line to it; None if there is none."""
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_ANSWER)
        try:
            with _folder(path.parent) as folder:
                line.connect(f"{folder}/{path.name}")
            keeper = _peer(line)
            if keeper is None:
                raise ConnectionRefusedError("another user's process")
            request = KEEPER_MESSAGES.to_data(ForkRequest(cwd, dict(env), network))
            fd_frames.send(line, request, (theirs.fileno(), 1, 2))
            data, _ = fd_frames.receive(line)
            if data is not None:
                answer = KEEPER_MESSAGES.from_data(data)
                assert isinstance(answer, Forked)
                return Adopted(answer.pid, keeper), ours
        except OSError:
            pass
    ours.close()  # a zygote that is forked too late finds that its agent is gone
    return None


def _peer(line: socket.socket) -> int | None:
    """The process at the other end; None if another user owns it."""
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid if uid == os.getuid() else None


@contextmanager
def _folder(path: Path, make: bool = False) -> Iterator[str]:
    """A short path to the folder, closed to other users: a socket's path has at most 107 bytes."""
    if make:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        os.fchmod(fd, 0o700)
        if make:
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


# The zygote's side


def claim(path: Path) -> socket.socket | None:
    """Listen at that path. None if another keeper does, or this system lacks what a keeper needs."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.close(os.pidfd_open(os.getpid()))
        with _folder(path.parent, make=True) as folder:
            _clean(folder, path.name)
            listener.bind(f"{folder}/{path.name}")
            listener.listen()
    except (AttributeError, OSError):
        listener.close()
        return None
    return listener


def _clean(folder: str, own_name: str) -> None:
    """Remove the sockets of killed keepers: this machine's at once, those of other machines after a day.

    A socket that is removed in error only costs the next run its imports.
    """
    machine = own_name.partition("-")[0]
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
                pass  # its keeper is alive, but busy


class Keeper:
    """A zygote after its run: it forks another one for every run that asks."""

    def __init__(self, listener: socket.socket, path: Path, seconds: float, born: float) -> None:
        self.listener = listener
        self.path = path
        self.seconds = seconds
        self.born = born  # when its imports began
        self.zygotes: dict[int, int] = {}  # pidfd -> pid

    def serve(self) -> socket.socket:
        """Serve until idle for `seconds`, then end. Returns only in forks, with the socket to their agent."""
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
                    line = self._answer()
                    if line is not None:
                        return line
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

    def _answer(self) -> socket.socket | None:
        caller, _ = self.listener.accept()
        with caller:
            caller.settimeout(_ANSWER)
            try:
                if _peer(caller) is None:
                    return None
                data, fds = fd_frames.receive(caller)
                request = KEEPER_MESSAGES.from_data(data)
            except (OSError, ValueError):
                return None
            if not isinstance(request, ForkRequest) or len(fds) != 3:
                return None
            pid = os.fork()
            if pid == 0:
                self.listener.close()
                for handle in self.zygotes:
                    os.close(handle)
                return _become(request, *fds)
            for fd in fds:
                os.close(fd)
            self.zygotes[os.pidfd_open(pid)] = pid
            with suppress(OSError):
                fd_frames.send(caller, KEEPER_MESSAGES.to_data(Forked(pid)))
        return None

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


def _become(request: ForkRequest, line: int, output: int, errors: int) -> socket.socket:
    """Become the zygote of another run."""
    processes.adopt_orphans()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    processes.redirect(output, errors)
    os.environ.clear()
    os.environ.update(request.env)
    os.chdir(request.cwd)
    if request.network == "private":  # the keeper has a private network; this run gets its own
        private_network.enter()
    jax = sys.modules.get("jax")
    if jax is not None:  # it read this variable for the run that has ended
        jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR"))
    return socket.socket(fileno=line)


def _has_changed_since(born: float) -> bool:
    """Whether an imported file was edited, or anything was installed, after `born`."""
    modules = [vars(module) for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)]
    files = [str(module.get("__file__")) for module in modules]  # some of these files do not exist
    return any(_changed(path) > born for path in {*sys.path, *files} - {""})


def _changed(path: str) -> float:
    try:
        return Path(path).stat().st_ctime
    except OSError:
        return 0.0
