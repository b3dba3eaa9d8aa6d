"""Names an agent, or a task, for `ps`, `top` and `pgrep`: by default a fork has the name of the zygote.

Nothing depends on it: if the system does not allow it, the name stays. Linux only.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from oarlock.agent.protocol.spec import Program
from oarlock.system import processes

_ARG_START, _ARG_END = 45, 46  # fields of /proc/self/stat, counted from the state: `man 5 proc`


def show_task(task: str, program: Program) -> None:
    """Name this process `oarlock worker-0 train.py --epochs 3`, or `train.py` if the name must be short."""
    words = ["-m", program.target] if program.kind == "module" else [program.target]
    _show(" ".join(["oarlock", task, *words, *program.args]))
    processes.set_name(Path(program.target).name.encode("utf-8", "backslashreplace"))  # its first 15 bytes


def show_agent(folder: Path) -> None:
    """Name this process `oarlock.agent FOLDER`, as if it had been started for that run."""
    _show(f"oarlock.agent\0{folder}")


def _show(title: str) -> None:
    with suppress(OSError, ValueError):
        _set_command(title.encode("utf-8", "backslashreplace"))


def _set_command(title: bytes) -> None:
    """Overwrite the arguments that this process was started with, which is where /proc finds them.

    This writes to /proc/self/mem, because a wrong address is an OSError there and a crash elsewhere. Python
    has a copy of the arguments, and so has a fork: no other process changes.
    """
    stat = Path("/proc/self/stat").read_bytes()
    fields = stat[stat.rindex(b")") + 2 :].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    shown = Path("/proc/self/cmdline").read_bytes()
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        if end - start < 2 or os.pread(memory.fileno(), end - start, start) != shown:
            raise ValueError("the arguments are elsewhere")
        room = end - start - 1
        os.pwrite(memory.fileno(), title[:room].ljust(room + 1, b"\0"), start)
