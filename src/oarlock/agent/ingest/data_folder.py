"""The folder of prepared data: built as a draft, then renamed, so that it is complete or missing.

    <root>/<key>                what an ingest has made; `.ingest.json` in it says when and by which run
    <root>/.<key>.ingest/       the draft: a lock, the sources, and the data so far

`key` is a digest of all that the data depends on, so another program or source gets another folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oarlock.run.quick_dataclass import dataclass
from oarlock.system.atomic_file import sync_folder, write_durably

MARK = ".ingest.json"


@dataclass(frozen=True)
class DataFolder:
    """Where one ingest builds its data, and where it ends up."""

    target: Path

    @property
    def work(self) -> Path:
        """Where it is built: on the same file system, so that a rename moves it."""
        return self.target.with_name(f".{self.target.name}.ingest")

    @property
    def sources(self) -> Path:
        """The fetched sources. They stay until the ingest is done, so that a broken download resumes."""
        return self.work / "sources"

    @property
    def draft(self) -> Path:
        """The data so far."""
        return self.work / "data"

    def made_by(self) -> dict[str, Any] | None:
        """When and by which run the data was made; None if it is not complete."""
        try:
            mark = json.loads((self.target / MARK).read_text())
        except (OSError, ValueError):
            return None
        return mark if isinstance(mark, dict) else None

    def is_done(self, run: str, when: str) -> bool:
        """Whether the data is what this run asks for: made by any run, or with `always` by this one."""
        made = self.made_by()
        return made is not None and (when != "always" or made.get("run") == run)

    def try_lock(self, name: str) -> int | None:
        """Take the lock, which the kernel frees when this process ends. None if another process holds it."""
        self.work.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.work / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(fd, self.work / "lock"):  # the previous holder has removed the folder
                os.close(fd)
                return None
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, name.encode(), 0)
        return fd

    def holder(self) -> str:
        """The run that holds the lock."""
        try:
            return (self.work / "lock").read_text().strip() or "another run"
        except OSError:
            return "another run"

    def clear_leftovers(self) -> None:
        """Delete what is left of an ingest that was killed after its data was in place."""
        if not self.work.exists():
            return
        try:
            lock = self.try_lock("")
        except OSError:
            return  # the volume is read-only, or full
        if lock is not None:
            self.drop_work()
            os.close(lock)

    def drop_work(self) -> None:
        """Delete the folder in which the data was built. The caller holds the lock."""
        shutil.rmtree(self.work, ignore_errors=True)

    def begin(self) -> None:
        """Delete what an ingest that died has left. Its sources stay."""
        shutil.rmtree(self.draft, ignore_errors=True)
        for folder in (self.sources, self.draft):
            folder.mkdir(parents=True, exist_ok=True)

    def take_sources(self) -> None:
        """Make the sources the data: there is no program to read them."""
        shutil.rmtree(self.draft)
        self.sources.rename(self.draft)

    def seal(self, run: str, key: str) -> tuple[int, int]:
        """Flush the data to disk, mark it as complete and move it into place. Returns its size in files and
        bytes."""
        files = bytes = 0
        folders = [self.draft]
        for path in _below(self.draft):
            if path.is_dir() and not path.is_symlink():
                folders.append(path)
            elif path.is_file():
                files, bytes = files + 1, bytes + path.stat().st_size
                _flush(path)
        for folder in reversed(folders):
            sync_folder(folder)
        made = {"version": 1, "key": key, "run": run, "time": time.time(), "files": files, "bytes": bytes}
        write_durably(self.draft / MARK, json.dumps(made).encode(), mode=0o644)
        self._replace()
        return files, bytes

    def _replace(self) -> None:
        """Move the draft into place. A task that still reads the replaced data keeps its open files."""
        old = self.work / "old"
        shutil.rmtree(old, ignore_errors=True)
        if self.target.exists():
            self.target.rename(old)
        self.draft.rename(self.target)
        sync_folder(self.target.parent)
        self.drop_work()


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent) / name for name in (*folders, *files))


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
