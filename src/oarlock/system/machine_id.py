"""Which machine this is: records may be on a file system that several machines share."""

from __future__ import annotations

import functools
import os
from pathlib import Path

# A lock on these may be local to each machine. On any other, a free lock means that no process has the run.
_SHARED = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "9p",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "glusterfs",
)

_LOCAL = ("fuse.fuse-overlayfs",)  # used in containers without root


def name() -> str:
    """The name of this machine. OARLOCK_HOST is for containers that get a new name at each start."""
    return os.environ.get("OARLOCK_HOST") or os.uname().nodename


@functools.cache
def is_shared(folder: Path) -> bool:
    """Whether a folder is on a network file system."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
        device = folder.stat().st_dev
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = [line.partition(" - ")[2].split(" ")[0] for line in mounts if line.split(" ")[2] == number]
    return any(kind in _SHARED or (kind.startswith("fuse.") and kind not in _LOCAL) for kind in kinds)


def is_agent(pid: int, folder: Path, lock: Path) -> bool:
    """Whether that process is the agent of the run with that record and that lock: pids are reused.

    Its command line says so, if there was room for a long path. It also has the lock open, which is visible
    only from a process with its user, group and capabilities.
    """
    process = Path(f"/proc/{pid}")
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return not Path("/proc/self").exists()  # not Linux: there is nothing to read
    if any("oarlock.agent" in word for word in words) and str(folder) in words:
        return True
    try:
        return any(_leads_to(fd, lock) for fd in (process / "fd").iterdir())
    except OSError:
        return False


def _leads_to(fd: Path, file: Path) -> bool:
    try:
        return fd.samefile(file)
    except OSError:
        return False  # closed since
