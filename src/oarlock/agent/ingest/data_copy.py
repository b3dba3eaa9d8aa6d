"""Copies of prepared data, for machines that cannot see the leader's folder: the ingest runs once for all.

    python -m oarlock.agent.ingest.data_copy '{"target": ...}'

The leading agent offers its data once it is complete (`Offer`). A following agent's stage starts this module
as a task. It asks until there is an offer, and fetches the files. Data that is too large for that, or that
contains links, is not offered: then each machine prepares its own.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from oarlock.agent.ingest.data_folder import MARK, DataFolder
from oarlock.agent.net import control
from oarlock.agent.protocol import messages, wire
from oarlock.agent.protocol.messages import OfferedFile
from oarlock.agent.protocol.spec import IngestSpec, Program, Spec
from oarlock.agent.snapshots.file_sender import DATA, OFFER
from oarlock.agent.snapshots.sealed_files import Incoming
from oarlock.run.quick_dataclass import dataclass
from oarlock.run.typed import build
from oarlock.system.safe_names import stays_inside
from oarlock.training.task import channel

EACH = 75  # the exit code that means: prepare it yourself
MOST = 10_000  # files and folders that are offered
LARGEST = 16 << 30  # bytes, all of them together
_MODULE = "oarlock.agent.ingest.data_copy"  # this one; `__name__` is `__main__` in the task
_PATIENCE = 30.0  # seconds without a byte
_OUR_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG}


# The leading agent


@dataclass(frozen=True)
class Offer:
    """The data of this run, on the leading agent's machine."""

    folder: DataFolder
    run: str
    ingest: IngestSpec | None

    @classmethod
    def of(cls, spec: Spec) -> Offer:
        """The offer of the agent that leads this run."""
        return cls(DataFolder(Path(spec.folders.get("data", ""))), spec.run, spec.ingest)

    def to_data(self) -> wire.Message:
        """List the files as JSON data, or say why not: incomplete, or each machine prepares its own."""
        if self.ingest is None or not self.folder.is_done(self.run, self.ingest.when):
            return {"files": [], "state": "preparing"}
        files: list[OfferedFile] = []
        size = 0
        for file in _files(self.folder.target):
            if file is None:
                return {"files": [], "state": "each", "why": "it has links in it"}
            files.append(file)
            size += file.size
            if len(files) > MOST or size > LARGEST:
                why = f"it is more than {MOST:,} files or {LARGEST >> 30} GiB"
                return {"files": [], "state": "each", "why": why}
        return {"files": [list(file) for file in files], "state": "ready"}

    def paths(self, name: str) -> list[Path]:
        """The file of that name, if there is one and it is inside the folder."""
        path = self.folder.target / name
        inside = stays_inside(name) and self.folder.target.resolve() in path.resolve().parents
        return [path] if inside and path.is_file() else []


def _files(folder: Path) -> Iterator[OfferedFile | None]:
    """All files, and folders without files. None for a link or anything else."""
    for here, folders, names in os.walk(folder):
        for name in sorted((*folders, *names)):
            path = Path(here, name)
            found = path.lstat()
            relative = path.relative_to(folder).as_posix()
            if stat.S_ISREG(found.st_mode):
                if relative != MARK:
                    mode = stat.S_IMODE(found.st_mode)
                    yield OfferedFile(relative, found.st_size, found.st_mtime_ns, mode)
            elif not stat.S_ISDIR(found.st_mode):
                yield None
            elif not any(path.iterdir()):
                yield OfferedFile(relative + "/", 0, found.st_mtime_ns, 0o755)


# A machine that cannot see the leader's folder


@dataclass(frozen=True)
class CopyOrder:
    """The arguments of the task."""

    target: str
    key: str
    run: str
    host: str  # the leading agent's
    port: int
    token: str  # the path of a file
    patience: float  # how many seconds to wait for an answer


def program(spec: Spec, ingest: IngestSpec, folder: DataFolder, leader: tuple[str, int]) -> Program:
    """Return what a following agent runs first. The caller holds the lock of the folder."""
    host, port = leader
    order = CopyOrder(
        target=str(folder.target),
        key=ingest.key,
        run=spec.run,
        host=host,
        port=port,
        token=spec.token,
        patience=spec.limits.rendezvous,
    )
    return Program("module", _MODULE, [json.dumps(asdict(order))])


def main(words: list[str]) -> int:
    """Copy the leader's data. Returns the exit code: EACH if there is nothing to copy."""
    order = build(CopyOrder, json.loads(words[0]))
    folder = DataFolder(Path(order.target))
    try:
        folder.begin()
        copy = Copy(order, folder)
        why = copy.all()
        if why is not None:
            print(
                f"ingest: the leader's data is not copied: {why}; this machine prepares its own", flush=True
            )
            return EACH
        files, size = folder.seal(order.run, order.key)
        print(f"ingest: {files} files, {size:,} bytes, copied from the leader", flush=True)
    except OSError as problem:
        message = f"{problem.filename or folder.work}: {problem.strerror or problem}"
        print(f"oarlock: {message}", file=sys.stderr, flush=True)
        channel.send({"kind": "error", "type": "OSError", "message": message, "where": None})
        return 1
    return 0


class Copy:
    """Asks until all of it is here. What has arrived is not asked for again."""

    def __init__(self, order: CopyOrder, folder: DataFolder) -> None:
        self._order = order
        self._folder = folder
        self._token = Path(order.token).read_text().strip()

    def all(self) -> str | None:
        """Fetch everything. Returns why not if each machine has to prepare its own. Raises OSError."""
        deadline = time.monotonic() + self._order.patience
        while True:
            try:
                offered = self._ask()
                if offered.state == "each":
                    return offered.why
                if offered.state == "ready":
                    self._fetch(offered.files)
                    return None
                deadline = time.monotonic() + self._order.patience  # it answers: its data is not ready
            except (OSError, ValueError, wire.WireError) as problem:
                if isinstance(problem, OSError) and problem.errno in _OUR_DISK:
                    raise
                if time.monotonic() > deadline:
                    raise OSError(f"the leader's data did not arrive: {problem}") from None
            time.sleep(random.uniform(0.3, 0.7))

    def _ask(self) -> messages.OfferedData:
        with self._line() as line:
            return messages.offered_data(control.Dialogue(line, self._token).ask({"ask": OFFER}))

    def _line(self) -> socket.socket:
        return socket.create_connection((self._order.host, self._order.port), timeout=_PATIENCE)

    def _fetch(self, files: Sequence[OfferedFile]) -> None:
        wanted = {file.name.rstrip("/") for file in files}
        for path in sorted(self._folder.draft.rglob("*"), reverse=True):
            if path.is_file() and path.relative_to(self._folder.draft).as_posix() not in wanted:
                path.unlink()  # from an earlier offer
        total, done = sum(file.size for file in files), 0
        for file in files:
            path = self._folder.draft / file.name
            if file.name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
            elif not _is_here(path, file):
                self._receive(file, path)
            done += file.size
            channel.report({"step": done, "total": max(total, 1)})

    def _receive(self, file: OfferedFile, path: Path) -> None:
        """Write to a draft and rename it, so that a file is whole if it exists."""
        part = self._folder.work / "part"
        with self._line() as line:
            dialogue = control.Dialogue(line, self._token)
            sent = messages.files(dialogue.ask({"ask": DATA, "name": file.name}))
            if [size for _, size in sent] != [file.size]:
                raise ValueError(f"{file.name} has changed")
            Incoming(line, *dialogue.rest()).into(part, file.size)
        part.chmod(file.mode)
        os.utime(part, ns=(file.modified, file.modified))
        path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(path)


def _is_here(path: Path, file: OfferedFile) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (file.size, file.modified)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
