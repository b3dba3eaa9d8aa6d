"""Running a published program under `oarlock run` or torchrun, and reading from its own output when its first
step was done, and where it went on after a worker was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from oarlock.records import runs
from tests.support.commands import SCRIPT
from tests.support.published_programs import Program
from tests.support.waiting import eventually

_PATIENCE = 300  # seconds for one run
_FORMED = re.compile(r"^oarlock \| generation (\d+):")


@dataclass
class Seen:
    """What its output said."""

    code: int = -1
    first_step: float | None = None  # seconds after the command was entered
    steps: list[tuple[int, int | None]] = field(default_factory=list)  # generation, number if it has one
    generation: int = 0
    lines: list[str] = field(default_factory=list)

    def told(self) -> str:
        """The last of it, for a failure's message."""
        return "\n".join(self.lines[-40:])

    def number(self, generation: int, which: int) -> int | None:
        """The first (0) or last (-1) step of a generation."""
        found = [number for formed, number in self.steps if formed == generation]
        return found[which] if found else None


def ours(program: Program) -> list[str]:
    """The command line."""
    return [str(SCRIPT), "run", "-n", str(program.workers), *program.words]


def peer(program: Program) -> list[str]:
    """The same under torchrun."""
    torchrun = Path(sys.executable).with_name("torchrun")
    return [str(torchrun), "--nproc_per_node", str(program.workers), *program.words]


def watch(
    program: Program,
    command: list[str],
    folder: Path,
    variables: Mapping[str, str],
    on_line: Callable[[Seen], object] = lambda _: None,
) -> Seen:
    """Run it to its end."""
    seen, began = Seen(), time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **variables, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    limit = threading.Timer(_PATIENCE, _kill_all, (process.pid,))
    limit.start()
    try:
        with process.stdout as output:
            for line in output:
                _read(program, line.rstrip("\n"), seen, time.monotonic() - began)
                on_line(seen)
        seen.code = process.wait()
    finally:
        limit.cancel()
        _kill_all(process.pid)
        process.wait()
    return seen


def _kill_all(pid: int) -> None:
    """Kill a process and all below it: torchrun's workers have sessions of their own, and hold its output."""
    with suppress(psutil.NoSuchProcess):
        for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def killed(program: Program, folder: Path, variables: Mapping[str, str]) -> Seen:
    """Under `oarlock run`, with one SIGKILL of the last worker: after its step `kill_at`, or at its start if
    its steps have no numbers."""
    done: list[int] = []

    def kill(seen: Seen) -> None:
        number = seen.number(1, -1)
        is_due = number is not None and number >= program.kill_at if program.kill_at else seen.generation == 1
        if is_due and not done:
            done.append(_kill(f"worker-{program.workers - 1}"))

    seen = watch(program, ours(program), folder, variables, kill)
    assert done, f"it ended before step {program.kill_at}:\n{seen.told()}"
    return seen


def _read(program: Program, line: str, seen: Seen, after: float) -> None:
    seen.lines.append(line)
    if formed := _FORMED.match(line):
        seen.generation = int(formed[1])
    if match := re.search(program.step, line):
        seen.steps.append((seen.generation, int(match[1]) if match.groups() else None))
        if seen.first_step is None:
            seen.first_step = after


def _kill(task: str) -> int:
    [run] = [run for run in runs.all_runs() if not run.state().is_over]
    pid = eventually(lambda: run.state().tasks[task].pid, f"start of {task}")
    os.kill(pid, signal.SIGKILL)
    return pid
