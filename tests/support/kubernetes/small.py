"""Small runs: the cluster's two nodes have two processors each, for all of the tests together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.commands import Command


def sets(*settings: str) -> tuple[str, ...]:
    """Settings as words of a command line."""
    return tuple(word for setting in settings for word in ("--set", setting))


# What a small role asks for: as fields of a job file, as settings of the workers, as words of a command line.
SMALL = {"cpu": 0.05, "memory": "200Mi"}
SMALL_SETTINGS = tuple(f"roles.worker.{name}={value}" for name, value in SMALL.items())
SMALL_WORDS = sets(*SMALL_SETTINGS)


def start_detached(
    oarlock: Command,
    name: str,
    program: Path,
    *args: str,
    workers: int | str = 2,
    settings: Sequence[str] = (),
) -> None:
    """Start a run of small workers on the cluster, and return once it is there."""
    words = ("run", "--on", "kubernetes", "-d", "--name", name, "-n", str(workers))
    done = oarlock(*words, *SMALL_WORDS, *sets(*settings), str(program), *args)
    assert done.returncode == 0, done.stderr
