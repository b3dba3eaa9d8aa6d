"""Where a keeper (`warm_keeper`) and later runs meet: a socket in a folder next to the runs.

Only its user can enter that folder. Other users have no access, nor have the user's processes in a container
that does not see it. The socket's name is a digest of all that an import may depend on: another interpreter,
folder, variable, limit or control group has no such socket.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from oarlock.agent.zygote import compile_cache

ANSWER = 2.0  # seconds for either side to answer
_DAY = 86400.0
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
# Variables that differ between terminals or runs and that no import reads. (Except in JAX: see `forks`.)
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


def peer(line: socket.socket) -> int | None:
    """The process at the other end; None if another user owns it."""
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid if uid == os.getuid() else None


@contextmanager
def short_folder(path: Path, make: bool = False) -> Iterator[str]:
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


def claim(path: Path) -> socket.socket | None:
    """Listen at that path. None if another keeper does, or this system lacks what a keeper needs."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.close(os.pidfd_open(os.getpid()))
        with short_folder(path.parent, make=True) as folder:
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
            probe.settimeout(ANSWER)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            except OSError:
                pass  # its keeper is alive, but busy
