"""One run's record: its state, and the lock.

The lock tells a living run from a lost one: the kernel releases it when the agent ends, however it ends, and
no process id can be mistaken for another.

The record of a run on a cluster is written by a client that follows the run, which holds the lock meanwhile.
It shows the run as a client last saw it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.errors import LaterRun, OarlockError, UnknownRun
from oarlock.records import late_scores, state_cache
from oarlock.records.record_files import RecordFiles
from oarlock.run.run_events import Event, decode
from oarlock.run.run_state import RunState
from oarlock.run.typed import VERSION, LaterVersion, check_version
from oarlock.system import machine_id
from oarlock.system.polling import wait_for

if TYPE_CHECKING:
    from oarlock.agent.protocol.spec import Spec

_LOCAL = "local"  # the engine whose agents run on this machine and write the record themselves
_ENGINE = "[a-z][a-z0-9-]*"  # a damaged record may hold anything
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # on some network file systems
_NEW = 60.0  # seconds for an agent to announce itself
_GRACE = 30.0  # seconds, where the spec cannot be read


@dataclass(frozen=True)
class RunFolder(RecordFiles):
    """A run, as its record on this machine shows it."""

    @property
    def engine(self) -> str:
        """The name of the engine that runs it."""
        if self.cluster_file.exists():
            return self._placed("engine", _ENGINE) or "kubernetes"
        try:
            name = next(self.events(), {}).get("engine")
        except OSError:
            return _LOCAL  # the record is gone
        return name if isinstance(name, str) and re.fullmatch(_ENGINE, name) else _LOCAL

    @property
    def _client_writes(self) -> bool:
        """Whether agents elsewhere have the run: then the lock only says that a client follows it."""
        return self.engine != _LOCAL

    @property
    def sent_from(self) -> Path | None:
        """The program's folder, if this machine sent the run to a cluster.

        None if another client did, and for records of earlier versions, which do not say.
        """
        return Path(folder) if (folder := self._placed("sent_from")) else None

    def _placed(self, field: str, pattern: str = "(?s:.*)") -> str | None:
        try:
            value = json.loads(self.cluster_file.read_bytes())[field]
            return value if re.fullmatch(pattern, value) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def is_from_here(self) -> bool:
        """Whether a user of this machine started or sent the run, so that its job can be trusted."""
        return not self.cluster_file.exists() or self.sent_from is not None

    @property
    def seen(self) -> float | None:
        """When a client last saw a run that is elsewhere; None if the run's own agent writes the record."""
        if not self._client_writes:
            return None
        watched = self.path / "watched.json"
        return watched.stat().st_mtime if watched.exists() else self.created

    @property
    def created(self) -> float:
        """When the run was created."""
        return self.job_file.stat().st_mtime

    def events(self) -> Iterator[Event]:
        """Yield the events that can be read; none if the file is missing from an existing record."""
        try:
            with self.events_file.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    event = decode(line)
                    if event is not None:
                        yield event
        except FileNotFoundError:
            if not self.path.exists():
                raise

    def state(self) -> RunState:
        """Return what is known now; a run without an agent that has not ended is `lost`."""
        is_held = self.is_held()  # checked first: an agent that ends in between has written its verdict
        result = self._result()
        state = result if isinstance(result, RunState) and not is_held else self._folded()
        for score in late_scores.read(self.scores_file):
            state.add_score(score, is_late=True)
        if state is result or is_held or state.is_final or self._client_writes:
            return state
        if isinstance(result, dict) and isinstance(result.get("state"), str):  # a later version's
            state.state, state.version = result["state"], max(state.version, VERSION + 1)
        else:
            state.state = "lost"
            state.reason = "its agent process is gone: the process or this machine went down"
        return state

    def spec(self) -> Spec:
        """Return the spec of its agents. Raises OarlockError if it is damaged or a later version's."""
        from oarlock.agent.protocol.spec import Spec  # which `oarlock ps` can do without

        with self._read(self.spec_file) as text:
            return Spec.from_json(text)

    def grace(self) -> float:
        """Return the seconds that its tasks get to end after they are asked to (`limits.grace`)."""
        try:
            return self.spec().limits.grace
        except (OSError, OarlockError):
            return _GRACE

    def folder(self, kind: str) -> str:
        """Return where its checkpoints, model, logs or data are: a path on its machine, or a URL.

        Raises OarlockError if the spec is damaged.
        """
        folders = self.spec().folders
        if kind not in folders:
            raise OarlockError(f"{self.spec_file} is damaged: it names no folder for {kind}")
        return folders[kind]

    def later(self) -> str | None:
        """Return a sentence about a record that a later Oarlock wrote; None for any other."""
        try:
            with self._read(self.spec_file) as text:
                if isinstance(data := json.loads(text), dict):
                    check_version(data)
        except LaterRun as problem:
            return str(problem)
        except (OarlockError, OSError):
            return None  # reported by the code that needs the spec
        return None

    def place(self) -> dict[str, Any]:
        """Return the content of cluster.json. Raises OarlockError if it is damaged."""
        with self._read(self.cluster_file) as text:
            place = json.loads(text)
            if not isinstance(place, dict) or not isinstance(place.get("namespace"), str):
                raise ValueError("it names no namespace")
            check_version(place)
            return place

    def is_running(self) -> bool:
        """Return whether the run has not ended, as far as the record shows."""
        return not self.state().is_over if self._client_writes else self.is_held()

    def elsewhere(self) -> str | None:
        """Return the name of the other machine that has the run, if there is one.

        On a network file system every machine may see only its own locks.
        """
        if self._client_writes or not machine_id.is_shared(self.path):
            return None
        state = self._folded()
        is_ours = state.is_final or state.host in (None, machine_id.name())
        return None if is_ours else state.host

    def is_held(self) -> bool:
        """Return whether a process holds the lock."""
        try:
            with self.lock_file.open("rb") as lock:
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
        """Take the lock and return its file descriptor, to be passed to an agent.

        A concurrent `is_held` may delay it briefly. Raises OarlockError if another process has the lock, and
        UnknownRun if the run is deleted meanwhile: a process that has the lock has a run that exists.
        """
        host = self.elsewhere()
        if host is not None:
            raise OarlockError(
                f"{self.name} runs on {host}: use oarlock there. If {host} is gone for good, "
                f"set OARLOCK_HOST={host} for this command to take its place"
            )
        try:
            fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                wait_for(lambda: self._lock(fd), "lock", seconds, every=0.01)
            except BaseException:
                os.close(fd)
                raise
        except TimeoutError:
            raise OarlockError(self._who_has_it()) from None
        except FileNotFoundError:
            raise UnknownRun(f"the run {self.name} was deleted") from None
        return fd

    def _who_has_it(self) -> str:
        if self._client_writes:
            return f"another oarlock command on this machine follows {self.name}: end it and try again"
        return f"{self.name} is running; `oarlock stop {self.name}` stops it"

    def _lock(self, fd: int) -> bool:
        """Try to take the lock. Raises FileNotFoundError once the file is no longer the run's."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        except BlockingIOError:
            is_ours = False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            is_ours = not self._seems_held()
        if not os.path.samestat(os.fstat(fd), self.lock_file.stat()):
            raise FileNotFoundError(self.path)
        return is_ours

    def _seems_held(self) -> bool:
        """Without locks: return whether the agent that the record names runs, or is about to."""
        state = self._folded()
        if state.is_final:
            return False
        if state.host not in (None, machine_id.name()):
            return True
        if state.agent is None:
            return time.time() - (state.created or 0) < _NEW
        return machine_id.is_agent(state.agent, self.path, self.lock_file)

    def delete(self) -> None:
        """Delete the record under the lock: a process that waits for the lock finds that the run is gone."""
        held = self.hold(seconds=10.0 if self._client_writes else 2.0)
        try:
            self.remove()
        finally:
            os.close(held)

    def remove(self) -> None:
        """Delete the record; the caller has the lock.

        The folder is renamed first: a deletion that is cut short leaves no half run.
        """
        grave = self.path.with_name(f".{self.name}.{os.getpid()}.deleted")
        self.path.rename(grave)
        shutil.rmtree(grave)

    def _folded(self) -> RunState:
        try:
            return state_cache.state_of(self.name, self.events_file, self.state_cache_file)
        except FileNotFoundError:
            if not self.path.exists():
                raise
            return RunState(self.name)

    def _result(self) -> RunState | dict[str, Any] | None:
        """Return the final state; as plain data if a later version wrote it."""
        try:
            data = json.loads(self.result_file.read_bytes())
            return RunState.from_data(data)
        except LaterVersion:
            return dict(data)
        except (OSError, ValueError, RecursionError):
            return None

    @contextmanager
    def _read(self, path: Path) -> Iterator[str]:
        try:
            yield path.read_text(encoding="utf-8")
        except FileNotFoundError as missing:
            raise missing if self.path.exists() else UnknownRun(f"the run {self.name} was deleted") from None
        except LaterVersion as later:
            raise LaterRun(self.name, later) from None
        except (ValueError, RecursionError) as problem:
            raise OarlockError(f"{path} is damaged: {problem}") from None
