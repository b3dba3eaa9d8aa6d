"""Leaves no process behind: what Linux offers for that, with quiet fallbacks on other systems."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
from collections.abc import Collection, Container
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.system import control_group
from oarlock.system.polling import wait_for

if TYPE_CHECKING:
    import subprocess

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PF_EXITING = 0x4
_HIGH = 900  # a descriptor; those from 1,024 on are too high for select()
WRITER = b"oarlock-writer"  # the name of a process that writes checkpoints; the kernel keeps 15 bytes
_FILES_OF_A_TASK = 6  # open in its agent at most: log, output, events, and copies on their way to the zygote
_FILES = 128  # open in an agent besides
BARE_PATH = "import sys; sys.path[:] = [place for place in sys.path if place]"


def entry(module: str) -> str:
    """Code for `python -c` that runs main() of an Oarlock module: installed, in a checkout or in a zip.

    The current folder is not searched: it is often the program's, whose `secrets.py` must not be imported.
    """
    root = str(Path(__file__).parents[2])
    return f"{BARE_PATH}; sys.path.append({root!r}); from {module} import main; sys.exit(main())"


def raise_limits() -> None:
    """Raise the limit of open files: a thousand agents need as many, and the usual soft limit is 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if most == resource.RLIM_INFINITY else min(65536, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def lacking_files(tasks: int) -> str | None:
    """Why an agent here cannot host that many tasks, if the hard limit of open files is too low."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = tasks * _FILES_OF_A_TASK + _FILES
    if most == resource.RLIM_INFINITY or needed <= most:
        return None
    return (
        f"{tasks} tasks on one machine need {needed} open files, and this machine allows {most} (ulimit -Hn)"
    )


def die_with_parent(sig: int = signal.SIGKILL) -> None:
    """Have the kernel send `sig` to this process when its parent ends; 0 cancels that."""
    _prctl(_PR_SET_PDEATHSIG, sig)


def raised(fd: int) -> int:
    """Give a descriptor a high number, and keep it from programs that this process starts. When a process is
    killed, the kernel closes the highest first: the listener notices the death before a driver frees a GPU,
    which takes 0.3 s."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # higher than the limit of this process
        os.set_inheritable(fd, False)
        return fd
    os.close(fd)
    return high


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it, so that none escapes to init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int, spare: Container[int] = ()) -> list[int]:
    """All processes below `root`, parents first, except `spare` and those below them. Zombies count: they
    exist until they are reaped."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    level = [root]
    while level:
        level = [child for pid in level for child in children.get(pid, []) if child not in spare]
        found += level
    return found


def ended_children() -> set[int]:
    """Children of this process that have ended and are not reaped yet."""
    found, me = set(), str(os.getpid()).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        fields = stat_fields(entry)
        if fields is not None and fields[0] == b"Z" and fields[1] == me:
            found.add(int(entry.name))
    return found


_spared: set[int] = set()  # children with an owner in this process, which ends them


def spare(pid: int) -> None:
    """Have `end_orphans` leave this child alone, with all its descendants."""
    _spared.add(pid)


def release(pid: int) -> None:
    """Undo `spare`: this child has no owner here any more."""
    _spared.discard(pid)


def end_orphans(
    limit: float = 5.0, spare: Collection[int] | None = None, unawaited: bytes | None = None
) -> None:
    """Kill and reap everything below this process that is not spared. A fork bomb gets `limit` seconds.

    Processes named `unawaited` are only killed: the kernel frees just 10 GB of memory a second.
    """
    spared = _spared if spare is None else spare

    def are_ended() -> bool:
        strays = descendants(os.getpid(), spared)
        for pid in strays:
            send(pid, signal.SIGKILL)
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass  # its parent reaps it; or that has ended, and it is ours next time
        return all(unawaited is not None and _has_name(pid, unawaited) for pid in strays)

    with suppress(TimeoutError):
        wait_for(are_ended, "end of all orphans", limit, every=0.002)


def await_end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a child to end, and kill it if it takes longer than that."""
    from subprocess import TimeoutExpired  # whoever has such a child has imported it

    try:
        process.wait(seconds)
    except TimeoutExpired:
        process.kill()
        process.wait()


def redirect(output: int, errors: int) -> None:
    """Send stdout and stderr to these descriptors, and close them."""
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for fd in {output, errors}:
        os.close(fd)


def set_name(name: bytes) -> None:
    """Give this process a name other than its interpreter's, if the system allows that."""
    with suppress(OSError):
        Path("/proc/self/comm").write_bytes(name)


def _has_name(pid: int, name: bytes) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().strip() == name
    except OSError:
        return False  # it is gone, and may have forked before


def send(pid: int, sig: int) -> None:
    """Signal a process, if it still exists."""
    try:
        os.kill(pid, sig)
    except (ProcessLookupError, PermissionError):
        pass


def send_group(pid: int, sig: int) -> None:
    """Signal a task and its process group, each process once: for programs a second SIGTERM means "now"."""
    try:
        os.killpg(pid, sig)
    except ProcessLookupError:
        send(pid, sig)  # right after the fork it has no group of its own yet
    except PermissionError:
        pass


def why_no_fork(number: int) -> str:
    """Why the system refused a process, in words, with the limits that apply."""
    reason = os.strerror(number)
    if number != errno.EAGAIN:
        return reason
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    user = f"this user may have {most} (ulimit -u)" if most != resource.RLIM_INFINITY else ""
    group = control_group.pids_limit()
    limits = [user, f"this control group {group} (pids.max)" if group else ""]
    return f"{reason}: too many processes and threads; {', '.join(filter(None, limits)) or 'no limit is set'}"


def exit_code(status: int) -> int:
    """A wait status as a shell shows it: the process's own code, or 128+n for signal n."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def shell_code(returncode: int) -> int:
    """The same for a return code from `subprocess`, where a signal is negative."""
    return 128 - returncode if returncode < 0 else returncode


def is_dying(pid: int) -> bool:
    """Whether it is killed but not dead yet: its sockets close first, and a large process takes some
    milliseconds."""
    fields = stat_fields(Path(f"/proc/{pid}"))
    return fields is not None and bool(int(fields[6]) & _PF_EXITING)


def _parent(entry: Path) -> int | None:
    fields = stat_fields(entry)
    return None if fields is None else int(fields[1])


def stat_fields(entry: Path) -> list[bytes] | None:
    """The fields from the state on: state, parent, group, session, terminal, its group, flags, ..."""
    try:
        stat = (entry / "stat").read_bytes()
    except OSError:
        return None
    # The name is in parentheses and may contain anything, even parentheses: read what follows the last one.
    return stat[stat.rindex(b")") + 2 :].split()


def _prctl(option: int, value: int) -> None:
    try:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    except (AttributeError, OSError):
        pass  # not Linux: the agent still ends its tasks by signals
