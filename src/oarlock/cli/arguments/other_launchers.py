"""Options and commands of other launchers (torchrun, accelerate, python), and Oarlock's equivalents. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_NOT_NEEDED = "here it is not needed: {}"
_MEETING = _NOT_NEEDED.format("Oarlock has the tasks find each other")
_ONE_COMMAND = _NOT_NEEDED.format("one `oarlock run` starts the tasks on all machines")
_MACHINES = "here it is -n {} --on kubernetes, one machine for each worker"
_WORKERS = "here it is -n {} (workers)"
# Option -> the launcher that has it, and what to say. `{}` stands for the number that follows the option.
_OPTIONS = {
    "--nproc-per-node": ("torchrun", _WORKERS),
    "--nnodes": ("torchrun", _MACHINES),
    "--node-rank": ("torchrun", _ONE_COMMAND),
    "--standalone": ("torchrun", _MEETING),
    "--rdzv-backend": ("torchrun", _MEETING),
    "--rdzv-endpoint": ("torchrun", _MEETING),
    "--rdzv-id": ("torchrun", _MEETING),
    "--master-addr": ("torchrun", _MEETING),
    "--master-port": ("torchrun", _MEETING),
    "--max-restarts": ("torchrun", "here it is --set limits.restarts={}"),
    "--num-processes": ("accelerate", _WORKERS),
    "--num-machines": ("accelerate", _MACHINES),
    "--machine-rank": ("accelerate", _ONE_COMMAND),
    "--num-gpus": ("deepspeed", _WORKERS),
    "--gpus": (None, "here it is -n {} --set roles.worker.gpu=1: one worker for each GPU"),
}
_PYTHON = re.compile(r"python[0-9.]*")
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "srun"})
_COUNTS = ("--nproc-per-node", "--num-processes", "--num-gpus", "-np")


def option_here(option: str, words: Sequence[str]) -> str | None:
    """Say how another launcher's option is written here; None if it is not known. `words`: the command."""
    found = _OPTIONS.get(_spelled(option))
    if found is None:
        return None
    owner, here = found
    advice = here.format(_count(words, (_spelled(option),)) or "N")
    return f"{option} is {owner}'s: {advice}" if owner else f"{option}: {advice}"


def command_here(words: Sequence[str]) -> str | None:
    """Say how a command that starts with Python or another launcher is written here; None for others."""
    launcher = words[0].rpartition("/")[2]
    is_python = _PYTHON.fullmatch(launcher) is not None
    if not is_python and launcher not in _LAUNCHERS:
        return None
    why = "Oarlock starts Python itself" if is_python else f"Oarlock is used instead of {launcher}"
    count = _count(words, _COUNTS)
    written = ["oarlock", "run", *(["-n", count] if count else []), *_program(words)]
    return f"{words[0]}: {why}: {shlex.join(written)}"


def _program(words: Sequence[str]) -> Sequence[str]:
    """The program or module in the command of another launcher, with its arguments."""
    for number, word in enumerate(words[1:], start=1):
        if word.endswith(".py") or word in ("-m", "--module"):
            return ["-m", *words[number + 1 :]] if word.startswith("-") else words[number:]
    return ["train.py"]


def _count(words: Sequence[str], options: Sequence[str]) -> str | None:
    """The number after one of the options, or after its equals sign."""
    for word, following in zip(words, [*words[1:], ""]):
        name, equals, value = word.partition("=")
        if _spelled(name) in options and (value if equals else following).isdecimal():
            return value if equals else following
    return None


def _spelled(option: str) -> str:
    return option.replace("_", "-")
