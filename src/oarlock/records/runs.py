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

Records are private: folders have mode 0700, and those that an older version made are tightened by their
owner. agent.json has a version, which goes for job.yaml and cluster.json beside it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.agent.protocol.spec import Spec
from oarlock.errors import JobError, LaterRun, OarlockError, UnknownRun
from oarlock.run.events import Event, decode
from oarlock.run.run_state import RunState, fold
from oarlock.run.typed import VERSION, LaterVersion, check_version
from oarlock.system import machine_id
from oarlock.system.atomic_file import sync_folder

_LETTERS = "abcdefghijkmnpqrstuvwxyz"
_NAME = "[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?"  # what Kubernetes takes too, with a role behind it
_OURS = frozenset({"runs", "data", "warm", "crashes"})  # what lies in OARLOCK_HOME
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of some network file systems
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ROOM = 64 * 1024  # bytes
_NEW = 60.0  # seconds for an agent to say that it is there
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
    def sent_from(self) -> Path | None:
        """The program's folder, of a run that this machine sent to a cluster. None if somebody else did, or
        nobody knows: an older record does not say."""
        try:
            told = json.loads((self.path / "cluster.json").read_bytes())["sent_from"]
            return Path(told) if isinstance(told, str) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def is_from_here(self) -> bool:
        """Whether this machine started or sent it: then what its record says, somebody here has said."""
        return not self.is_remote or self.sent_from is not None

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
        """Those that can be read; none where the file is gone from a record that is there."""
        try:
            with (self.path / "events.jsonl").open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    event = decode(line)
                    if event is not None:
                        yield event
        except FileNotFoundError:
            if not self.path.exists():
                raise

    def state(self) -> RunState:
        """What is known now; a run without an agent that did not end is `lost`."""
        is_held = self.is_held()  # asked first: an agent that ends in between has written its verdict
        result = self._result()
        if isinstance(result, RunState) and not is_held:
            return result
        state = fold(self.name, self.events())
        if is_held or state.is_final or self.is_remote:
            return state
        if isinstance(result, dict) and isinstance(result.get("state"), str):  # a later version's
            state.state, state.version = result["state"], max(state.version, VERSION + 1)
        else:
            state.state = "lost"
            state.reason = "its agent is gone: this machine or the agent went down"
        return state

    def spec(self) -> Spec:
        """What its agent was told. Raises OarlockError where a later version wrote it, or nobody."""
        with self._read("agent.json") as text:
            return Spec.from_json(text)

    def folder(self, kind: str) -> str:
        """Where its checkpoints, model, logs or data are: a path there, or a URL. Raises OarlockError."""
        folders = self.spec().folders
        if kind not in folders:
            raise OarlockError(f"{self.path / 'agent.json'} is damaged: it names no folder for {kind}")
        return folders[kind]

    def later(self) -> str | None:
        """The sentence about a record that a later Oarlock wrote; None for any other."""
        try:
            self.spec()
        except LaterRun as problem:
            return str(problem)
        except (OarlockError, OSError):
            return None  # said by whoever needs it
        return None

    def place(self) -> dict[str, Any]:
        """Where on which cluster it is: what cluster.json says. Raises OarlockError."""
        with self._read("cluster.json") as text:
            place = json.loads(text)
            if not isinstance(place, dict) or not isinstance(place.get("namespace"), str):
                raise ValueError("it names no namespace")
            check_version(place)
            return place

    def is_running(self) -> bool:
        """As far as is known here."""
        return not self.state().is_over if self.is_remote else self.is_held()

    def elsewhere(self) -> str | None:
        """The other machine that has it: on a network file system a lock may be each machine's own."""
        if self.is_remote or not machine_id.is_shared(self.path):
            return None
        state = fold(self.name, self.events())
        is_ours = state.is_final or state.host in (None, machine_id.name())
        return None if is_ours else state.host

    def is_held(self) -> bool:
        try:
            with (self.path / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return self._seems_held()
        return self.elsewhere() is not None

    def hold(self, seconds: float = 2.0) -> int:
        """The lock, as a descriptor to hand to an agent. Somebody's look at it may cost a moment. Raises
        UnknownRun where the run is deleted meanwhile: whoever has the lock has the run, and it is there."""
        host = self.elsewhere()
        if host is not None:
            raise OarlockError(
                f"{self.name} runs on {host}: use oarlock there. If {host} is gone for good, "
                f"OARLOCK_HOST={host} in front of the command takes its place"
            )
        deadline = time.monotonic() + seconds
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                while not self._lock(fd):
                    if time.monotonic() > deadline:
                        raise OarlockError(self._who_has_it())
                    time.sleep(0.01)
            except BaseException:
                os.close(fd)
                raise
        except FileNotFoundError:
            raise UnknownRun(f"there is no run called {self.name} any more: it was deleted") from None
        return fd

    def _who_has_it(self) -> str:
        if self.is_remote:
            return f"another oarlock on this machine follows {self.name}: end that one and try again"
        return f"{self.name} is running; `oarlock stop {self.name}` ends it"

    def _lock(self, fd: int) -> bool:
        """Whether it is ours now. Raises FileNotFoundError once the file is no longer the run's."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        except BlockingIOError:
            is_ours = False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            is_ours = not self._seems_held()
        if not os.path.samestat(os.fstat(fd), (self.path / "lock").stat()):
            raise FileNotFoundError(self.path)
        return is_ours

    def _seems_held(self) -> bool:
        """Without locks: whether the agent that the record names is there, or will be in a moment."""
        state = fold(self.name, self.events())
        if state.is_final:
            return False
        if state.host not in (None, machine_id.name()):
            return True
        if state.agent is None:
            return time.time() - (state.created or 0) < _NEW
        return machine_id.is_agent(state.agent, self.path)

    def delete(self) -> None:
        """Under the lock: whoever waits for it meanwhile finds that the run is gone."""
        held = self.hold(seconds=10.0 if self.is_remote else 2.0)
        try:
            self.remove()
        finally:
            os.close(held)

    def remove(self) -> None:
        """By whoever has the lock. First out of sight, then away: a delete that is cut short leaves no half
        run."""
        grave = self.path.with_name(f".{self.name}.{os.getpid()}.deleted")
        self.path.rename(grave)
        shutil.rmtree(grave)

    def keep_room(self) -> None:
        """For the verdict, should the disk be full by then; a disk that is full now says so."""
        with (self.path / "room").open("wb") as room:
            room.write(os.urandom(_ROOM))
            room.flush()
            os.fsync(room.fileno())

    def _result(self) -> RunState | dict[str, Any] | None:
        """The final state; what there is of it where a later version wrote it."""
        try:
            data = json.loads((self.path / "result.json").read_bytes())
            return RunState.from_data(data)
        except LaterVersion:
            return dict(data)
        except (OSError, ValueError, RecursionError):
            return None

    @contextmanager
    def _read(self, name: str) -> Iterator[str]:
        path = self.path / name
        try:
            yield path.read_text(encoding="utf-8")
        except LaterVersion as later:
            raise LaterRun(self.name, later) from None
        except (ValueError, RecursionError) as problem:
            raise OarlockError(f"{path} is damaged: {problem}") from None


def create(job: str, fill: Callable[[RunFolder], Any], name: str | None = None) -> RunFolder:
    """A new record, complete or not at all: `fill` writes into a folder nobody sees yet."""
    if name is not None:
        check_name(name)
    root = home() / "runs"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tighten()
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
            draft.mkdir(mode=0o700)
            try:
                fill(RunFolder(draft))
            except OSError as problem:
                if problem.errno in _FULL:
                    raise OarlockError(
                        f"no room for a new run in {root}: {problem.strerror}; "
                        "free some, or set OARLOCK_HOME to a folder elsewhere"
                    ) from None
                raise
            try:
                draft.rename(final)
            except OSError:
                continue  # taken between our look and now
            sync_folder(root)
            return RunFolder(final)
    raise OarlockError(f"no free name for a run of {job} in {root}")


def _tighten() -> None:
    """Nobody else reads records, or takes their locks. An OARLOCK_HOME with other things in it stays."""
    top = home()
    try:
        _make_private(top / "runs")
        with os.scandir(top) as entries:
            is_ours = all(entry.name in _OURS for entry in entries)
        if is_ours:
            _make_private(top)
        elif (top / "data").is_dir():
            _make_private(top / "data")
    except OSError:
        pass  # a read-only file system, or gone by now


def _make_private(folder: Path) -> None:
    known = folder.stat()
    if known.st_uid == os.geteuid() and known.st_mode & 0o077:
        folder.chmod(0o700)


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
    _tighten()
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
