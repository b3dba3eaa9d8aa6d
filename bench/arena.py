"""Where a measurement happens: a folder and an OARLOCK_HOME of its own, gone afterwards with all that ran.

Nothing here measures. Every wait has a deadline, and whatever was started is ended when the arena closes,
also what moved into a session of its own (our agent, torchrun's workers).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oarlock.system import free_ports, processes
from oarlock.system.polling import wait_for
from oarlock.system.processors import usable_cores

BIN = Path(sys.executable).parent
PROGRAMS = Path(__file__).parent / "programs"
_POLL = 0.02  # coarse, to leave the cores to what is measured: the programs look at the clock themselves
_ENOUGH = 120.0  # seconds for anything here, on a slow machine


class MeasurementError(Exception):
    """A measurement that came to nothing, with the last lines of what was said."""


@dataclass
class Arena:
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def env(self) -> dict[str, str]:
        """Ours, with this home; temporary files here too, since what is killed does not clear up."""
        return {**os.environ, "OARLOCK_HOME": str(self.home), "TMPDIR": str(self.folder)}

    def start(
        self, words: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """In a process group of its own, with its output in the log."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in words],
                env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def wait(self, done: Callable[[], Any], what: str, seconds: float = _ENOUGH) -> None:
        """Until done, or all that was started here has ended, or the time is over."""

        def is_done() -> bool:
            have_ended = all(process.poll() is not None for process in self.processes)
            if done():
                return True
            if have_ended:
                raise MeasurementError(f"it ended before {what}:\n{self.last_words()}")
            return False

        try:
            wait_for(is_done, what, seconds, every=_POLL)
        except TimeoutError as late:
            raise MeasurementError(f"{late}:\n{self.last_words()}") from None

    def finish(self, seconds: float = _ENOUGH) -> None:
        """Wait for all that was started here to end. How it ends is not judged: what was asked for is in the
        marks by then, and a bare torch process now and then aborts on its way out ("terminate called")."""
        self.wait(lambda: all(process.poll() is not None for process in self.processes), "end", seconds)

    def marks(self, name: str) -> list[str]:
        """The lines of a file that a program wrote (programs/marks.py); none if it has not."""
        try:
            return (self.folder / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def events(self) -> Iterator[dict[str, Any]]:
        """Of the runs in this home."""
        for file in self.home.glob("runs/*/events.jsonl"):
            yield from map(json.loads, file.read_text().splitlines())

    def last_words(self) -> str:
        return "\n".join(self.marks("log")[-20:])

    def close(self) -> None:
        for process in self.processes:
            processes.send_group(process.pid, signal.SIGKILL)
        processes.end_orphans()


@contextmanager
def arena() -> Iterator[Arena]:
    processes.adopt_orphans()  # or what outlives its parent would escape us
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-", ignore_cleanup_errors=True) as folder:
        place = Arena(Path(folder))
        try:
            yield place
        finally:
            place.close()


def oarlock_run(
    place: Arena,
    program: str,
    tasks: int,
    *args: str,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> None:
    """`oarlock run`, as a person types it. A run that is killed on purpose may restart for ever."""
    options = ["-n", str(tasks), "--set", "limits.restarts=1000", *options]
    place.start([BIN / "oarlock", "run", *options, PROGRAMS / program, "--marks", place.folder, *args], env)


def torchrun(place: Arena, program: str, tasks: int, *args: str, options: Sequence[str] = ()) -> None:
    words: list[str | Path] = [
        BIN / "torchrun",
        "--nproc-per-node",
        str(tasks),
        "--master-port",
        str(free_ports.free_ports(1)[0]),
    ]
    place.start([*words, *options, PROGRAMS / program, "--marks", place.folder, *args])


def plainly(place: Arena, program: str, tasks: int, *args: str, env: Mapping[str, str] | None = None) -> None:
    """A process per task and the variables that its framework needs: what a person's own script would do."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports.free_ports(tasks)]
    for rank in range(tasks):
        own = {**(env or {}), **_tensorflow(addresses, rank), **_torch(addresses, rank)}
        place.start([sys.executable, PROGRAMS / program, "--marks", place.folder, *args], own)


def shared_cores(tasks: int) -> dict[str, str]:
    """The thread pools that our agent gives each task, to offer them to a peer as well."""
    share = str(max(1, usable_cores() // tasks))
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), share)


def _tensorflow(addresses: Sequence[str], rank: int) -> dict[str, str]:
    task = {"type": "worker", "index": rank}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": list(addresses)}, "task": task})}


def _torch(addresses: Sequence[str], rank: int) -> dict[str, str]:
    host, port = addresses[0].split(":")
    return {"MASTER_ADDR": host, "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": str(len(addresses))}
