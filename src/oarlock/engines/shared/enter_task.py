"""Become a command that runs as a task does: in the program's folder, with the task's variables.

On this machine it is imported; a pod gets it as text (`python3 -c`). So it imports nothing of Oarlock, and
any Python 3.7 runs it. The values of the job's `env` are not sent: other users see the arguments of a
process, and an API server writes them into its audit log. They are read from the task's own spec.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

# The task's connection to its agent.
_ITS_OWN = ("OARLOCK_FD",)


def enter(order: dict[str, Any]) -> NoReturn:
    """Replace this process by the command of an order.

    The order has `words`, `cwd` and `env`; `pid`, the process whose environment it starts from (None: this
    one); and optionally `spec`, the file with the job's `env`, and `defaults`, for variables that process
    does not have.
    """
    env = {**order.get("defaults", {}), **variables_of(order["pid"])}
    env.update(env_of(order.get("spec")), **order["env"])
    for name in _ITS_OWN:
        env.pop(name, None)
    words, doing = order["words"], order["cwd"]
    try:
        _join_network(order["pid"])
        os.chdir(doing)
        sys.stdout.flush()
        doing = words[0]
        os.execvpe(doing, words, env)
    except OSError as problem:
        print(f"oarlock: {doing}: {problem.strerror}", file=sys.stderr, flush=True)
        os._exit(127 if isinstance(problem, FileNotFoundError) else 126)


def _join_network(pid: int | None) -> None:
    """Enter the network of a task with `network: private`; other tasks share the network of this process."""
    for kind in ("user", "net"):
        theirs = Path(f"/proc/{pid}/ns/{kind}")
        try:
            is_ours = theirs.stat().st_ino == Path(f"/proc/self/ns/{kind}").stat().st_ino
        except OSError:
            return  # there is no such process, or it cannot be read
        if is_ours:
            continue
        with theirs.open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def variables_of(pid: int | None) -> dict[str, str]:
    """Return the variables with which a process was started; what it has set since is not visible."""
    if pid is None:
        return dict(os.environ)
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    pairs = [os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry]
    return {name: value for name, _, value in pairs}


def env_of(spec: str | None) -> dict[str, str]:
    """Return the job's `env`, from the file with the spec."""
    if spec is None:
        return {}
    try:
        found: dict[str, str] = json.loads(Path(spec).read_text())["env"]
    except OSError as problem:
        print(f"oarlock: without the job's variables: {problem}", file=sys.stderr, flush=True)
        return {}
    return found


if __name__ == "__main__":
    enter(json.loads(sys.argv[1]))
