"""The supervisor of a model server: binds the socket, forks replicas, watches for newer versions.

It imports what the model needs but computes nothing: a framework that was used does not survive a fork. It
is the only task of a local run, and the first process of a pod.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from oarlock.models.model_manifest import BadManifest
from oarlock.serving.counters import Blocks
from oarlock.serving.fleet import access_files, announcement, bucket_mirror, listener, version_choice
from oarlock.serving.fleet.bucket_mirror import BucketMirror
from oarlock.serving.fleet.fleet import Fleet
from oarlock.serving.fleet.replica_process import ReplicaProcess
from oarlock.serving.fleet.traffic import Traffic
from oarlock.serving.fleet.version_choice import VersionSet
from oarlock.serving.server import replica
from oarlock.serving.settings import MOST_REPLICAS, Settings
from oarlock.training.task import context

_REPORT = 1.0  # seconds
_STILL = 60.0  # seconds between two equal reports
_SERVER_MODULES = ("uvloop", "httptools", "uvicorn.protocols.http.httptools_impl", "uvicorn.lifespan.off")
_OURS = (
    "oarlock.serving.server.loaded_models",
    "oarlock.serving.http.app",
    "oarlock.serving.server.draining_server",
)


class CannotServe(Exception):
    """The server cannot start, or has nothing left to serve; says why."""


class Supervisor:
    """One model server. `settings_file`: where to look for changed settings."""

    def __init__(self, settings: Settings, settings_file: Path | None, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._file = settings_file
        self._say = say
        self._blocks = Blocks(2 * MOST_REPLICAS + 2)
        self._fleet = Fleet(self._fork, say, settings.grace, self._blocks.count)
        self._traffic = Traffic(self._blocks)
        self._folder = Path()
        self._mirror: BucketMirror | None = None
        self._wanted: VersionSet | None = None
        self._proven: VersionSet | None = None  # the last set that answered, to return to
        self._seen: tuple[object, ...] | None = None  # the candidate's key at the last look
        self._said: set[object] = set()
        self._reported: dict[str, object] = {}
        self._reported_at = 0.0
        self._signals: list[int] = []

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises CannotServe."""
        with bucket_mirror.mirrored(self._settings, self._file) as (self._folder, self._mirror):
            self._run()

    def _run(self) -> None:
        if self._mirror is None:
            self._look(at_once=True)
        try:
            access_files.check(self._settings)
            self._listener = listener.listen(self._settings.host, self._settings.port)
        except (listener.CannotListen, ValueError) as problem:
            raise CannotServe(str(problem)) from None
        port = self._listener.getsockname()[1]
        self._url = listener.url(self._settings.scheme, self._settings.host, port)
        with self._listener, _Wakeups(self._signals) as wakeups:
            try:
                self._loop(wakeups)
            finally:
                self._fleet.end(now=True)
                for one in self._fleet.replicas:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(one.pid, 0)

    def _loop(self, wakeups: _Wakeups) -> None:
        looks = reports = time.monotonic()
        while True:
            self._fleet.turn()
            if self._signals:
                self._on_signal()
                if not self._fleet.replicas:
                    return
            else:
                self._steer()
            now = time.monotonic()
            if now >= looks:
                looks = now + self._settings.every
                self._look()
            if now >= reports:
                reports = now + _REPORT
                self._report()
            until = min(filter(None, (looks, reports, self._fleet.deadline())))
            self._wait(wakeups, max(0.0, until - now))

    def _wait(self, wakeups: _Wakeups, seconds: float) -> None:
        """Wait until a replica sends something or ends, a signal arrives, or the time is over."""
        said = [*self._fleet.replicas, *([self._mirror] if self._mirror else [])]
        lines = {one.line.fileno(): one for one in said if one.line is not None}
        found = select.select([wakeups.fd, *lines], [], [], seconds)[0]
        for fd in found:
            if fd in lines:
                lines[fd].read()
                for note in lines[fd].notes:
                    self._say_once(note)
        wakeups.clear()

    def _on_signal(self) -> None:
        """Let replicas finish, or kill them at a second signal. New clients are refused, not kept waiting."""
        self._listener.close()
        self._fleet.end(now=len(self._signals) > 1)

    def _steer(self) -> None:
        """Continue toward the wanted versions; give up those that do not load."""
        wanted, refused = self._wanted, self._fleet.refused
        if wanted is not None and wanted.key in refused:
            self._on_refused(wanted, refused[wanted.key])
        if self._wanted is not None:
            self._fleet.keep(self._wanted, self._settings.replicas)
        self._announce()

    def _on_refused(self, wanted: VersionSet, why: str) -> None:
        """Return to what has served so far; at the start, try the next older version."""
        said = f"{wanted.name} of {self._settings.name} does not load: {why}"
        if self._proven is not None:
            self._wanted = self._proven
            self._say(f"{said}; {self._proven.name} stays")
            return
        left = self._candidates()
        if not left:
            raise CannotServe(said)
        self._wanted = left[0]
        self._say(f"{said}; {left[0].name} is tried")

    def _candidates(self) -> list[VersionSet]:
        found = version_choice.candidates(self._settings, self._folder)
        return [one for one in found if one.key not in self._fleet.refused]

    def _look(self, at_once: bool = False) -> None:
        """Look for changed settings and newer versions. A new one must be unchanged for one look."""
        self._take_settings()
        if self._wanted is not None and not self._settings.follows:
            return
        if self._mirror is not None:
            at_once = self._looks_at_mirror(self._mirror)
        found = self._candidates()
        if not found:
            if at_once:
                raise CannotServe(version_choice.missing(self._settings, self._folder))
            return
        best = found[0]
        is_settled, self._seen = best.key == self._seen, best.key
        if self._wanted is not None and best.key == self._wanted.key:
            return
        if at_once or is_settled:
            self._import_for(best)
            if self._wanted is not None:
                self._say(f"loading {best.name} of {self._settings.name}")
            self._wanted = best

    def _looks_at_mirror(self, mirror: BucketMirror) -> bool:
        """Whether the folder is a whole copy of the bucket for the first time."""
        if mirror.reap():
            mirror.begin()  # it was killed
        if mirror.failed is not None:
            if self._wanted is None:
                raise CannotServe(mirror.failed)
            self._say_once(mirror.failed)
        return mirror.ready is not None and self._wanted is None

    def _take_settings(self) -> None:
        """Most may change while the server runs; new replicas use them. The address stays the same."""
        if self._file is None:
            return
        try:
            new = Settings.from_json(self._file.read_text())
        except (OSError, ValueError) as problem:
            self._say_once(f"{self._file} is not read: {problem}")
            return
        self._settings = new

    def _import_for(self, wanted: VersionSet) -> None:
        from oarlock.serving.runtimes import load_runtime

        for version in wanted.versions:
            try:
                modules = load_runtime.modules(version.manifest())
            except (BadManifest, OSError):
                continue  # the replica that loads it says why
            for name in (*modules, *_SERVER_MODULES, *_OURS):
                with contextlib.suppress(ImportError):  # the replica says which one is missing
                    importlib.import_module(name)

    def _fork(self, one: ReplicaProcess) -> None:
        settings, sock = self._settings, self._listener

        def body(line: socket.socket) -> int:
            place = replica.Place(settings, one.versions, sock, self._blocks, one.block, line)
            return replica.run(place)

        def closes() -> None:
            for other in (*self._fleet.replicas, *([self._mirror] if self._mirror else [])):
                other.close()

        one.start(body, closes)

    def _announce(self) -> None:
        """Announce what answers now, if that has changed."""
        serving, wanted = self._fleet.serving, self._wanted
        if wanted is None or wanted == self._proven or not self._fleet.ready:
            return
        if self._fleet.ready[-1].key != wanted.key:
            return
        is_first, self._proven = self._proven is None, wanted
        announced = announcement.of(self._settings, self._url, serving[0])
        if self._file is not None:
            announcement.write(announcement.path_for(self._file), announced)
        for line in announced.lines() if is_first else announced.lines()[:1]:
            self._say(line)

    def _report(self) -> None:
        serving = self._fleet.serving
        if not serving:
            return
        figures = {
            **self._traffic.look(),
            "replicas": len(self._fleet.ready),
            "version": " and ".join(str(one["number"]) for one in serving),
            "form": str(serving[0]["form"]),
        }
        now = time.monotonic()
        if figures != self._reported or now > self._reported_at + _STILL:
            self._reported, self._reported_at = figures, now
            context.current().report(**figures)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


class _Wakeups:
    """Signals interrupt the loop's wait. Those that ask it to stop are counted."""

    def __init__(self, asked: list[int]) -> None:
        self._asked = asked
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    @property
    def fd(self) -> int:
        """Readable after a signal."""
        return self._reader.fileno()

    def clear(self) -> None:
        """Be ready for the next one."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def __enter__(self) -> _Wakeups:
        self._before = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, self._note),
            signal.SIGINT: signal.signal(signal.SIGINT, self._note),
            signal.SIGCHLD: signal.signal(signal.SIGCHLD, lambda *_: None),
        }
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()

    def _note(self, number: int, _: object) -> None:
        self._asked.append(number)
