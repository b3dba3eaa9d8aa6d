"""Run records on this machine: their names, their folders, what state they are in.

    $OARLOCK_HOME/runs/<run>/
        job.yaml            the job as it ran
        agent.json          what the agent was told
        events.jsonl        everything that happened, a line each
        result.json         the final state, once there is one
        logs/<generation>/<task>.log,  agent.log      (long ones in segments)
        checkpoints/  model/  tensorboard/
        lock                held as long as an agent has the run

The lock tells a living run from a lost one: the kernel lets go of it when the agent ends,
however it ends, and no process id can be mistaken for another.

A run on a cluster has the same record, kept by whoever watches it (who holds the lock meanwhile), and
cluster.json, which says where it is. It is what was last seen of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.errors import JobError, OarlockError, UnknownRun
from oarlock.events import Event, RunState, decode, fold

_LETTERS = "abcdefghijkmnpqrstuvwxyz"
_NAME = "[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?"  # what Kubernetes takes too, with a role behind it
_NAME_IN_WORDS = "lower-case letters, digits and '-', starting with a letter, at most 40 characters"


def home() -> Path:
    return Path(os.environ.get("OARLOCK_HOME") or "~/.oarlock").expanduser().absolute()


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def is_remote(self) -> bool:
        """Whether it runs on a cluster: then the lock only says that somebody here watches it."""
        return (self.path / "cluster.json").exists()

    @property
    def seen(self) -> float:
        """When a client last looked at the cluster for it."""
        watched = self.path / "watched.json"
        return watched.stat().st_mtime if watched.exists() else self.created

    @property
    def created(self) -> float:
        """job.yaml is written once, when the run is made."""
        return (self.path / "job.yaml").stat().st_mtime

    def events(self) -> Iterator[Event]:
        with (self.path / "events.jsonl").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                event = decode(line)
                if event is not None:
                    yield event

    def state(self) -> RunState:
        """What is known now; a run without an agent that did not end is `lost`."""
        is_held = self.is_held()  # asked first: an agent that ends in between has written its verdict
        result = self._result()
        if result is not None and not is_held:
            return result
        state = fold(self.name, self.events())
        if not is_held and not state.is_final and not self.is_remote:
            state.state = "lost"
            state.reason = "its agent is gone: this machine or the agent went down"
        return state

    def is_running(self) -> bool:
        """As far as is known here."""
        return not self.state().is_over if self.is_remote else self.is_held()

    def _result(self) -> RunState | None:
        try:
            return RunState.from_data(json.loads((self.path / "result.json").read_bytes()))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def is_held(self) -> bool:
        try:
            with (self.path / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def hold(self, seconds: float = 2.0) -> int:
        """The lock, as a descriptor to hand to an agent. Somebody's look at it may cost a moment."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(fd)
                    raise OarlockError(
                        f"{self.name} is running; `oarlock stop {self.name}` ends it"
                    ) from None
                time.sleep(0.01)

    def delete(self) -> None:
        """First out of sight, then away: a delete that is cut short leaves no half run."""
        grave = self.path.with_name(f".{self.name}.deleted")
        self.path.rename(grave)
        shutil.rmtree(grave)


def create(job: str, fill: Callable[[RunFolder], Any], name: str | None = None) -> RunFolder:
    """A new record, complete or not at all: `fill` writes into a folder nobody sees yet."""
    if name is not None:
        check_name(name)
    root = home() / "runs"
    root.mkdir(parents=True, exist_ok=True)
    for leftover in root.glob(".*.deleted"):
        shutil.rmtree(leftover, ignore_errors=True)
    for _ in range(100):
        final = root / (name or new_name(job))
        if final.exists():
            if name:
                raise JobError(
                    f"there is a run called {name}: choose another --name, or `oarlock delete {name}`"
                )
            continue
        with tempfile.TemporaryDirectory(dir=root, prefix=".new-") as hidden:
            draft = Path(hidden) / final.name
            draft.mkdir()
            fill(RunFolder(draft))
            try:
                draft.rename(final)
            except OSError:
                continue  # taken between our look and now
            return RunFolder(final)
    raise OarlockError(f"no free name for a run of {job} in {root}")


def check_name(name: str) -> str:
    """A name that was given; raises JobError if it can be none."""
    if not re.fullmatch(_NAME, name):
        raise JobError(f"no name for a run: {name!r}; expected {_NAME_IN_WORDS}")
    return name


def new_name(job: str) -> str:
    return f"{job}-{''.join(random.SystemRandom().choices(_LETTERS, k=4))}"


def all_runs() -> list[RunFolder]:
    """Newest first."""
    root = home() / "runs"
    if not root.is_dir():
        return []
    found: list[tuple[float, RunFolder]] = []
    for path in root.iterdir():
        run = RunFolder(path)
        try:
            if not path.name.startswith("."):
                found.append((run.created, run))
        except OSError:
            pass  # not a run, or deleted since it was listed
    return [run for _, run in sorted(found, key=lambda pair: pair[0], reverse=True)]


def find(name: str | None) -> RunFolder:
    """The run of that name, or the latest where none is given."""
    found = all_runs()
    if name is None:
        if not found:
            raise UnknownRun("there are no runs yet; `oarlock run train.py` makes one")
        return found[0]
    for run in found:
        if run.name == name:
            return run
    matching = [run for run in found if run.name.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UnknownRun(f"{name} could be {', '.join(run.name for run in matching[:5])}")
    raise UnknownRun(f"there is no run called {name}; `oarlock ps` lists them")
