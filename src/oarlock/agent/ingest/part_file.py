"""A file being fetched: `<name>.part`, and next to it `<name>.part.json`, which says what it is a part of.

The target exists only when all of it is on disk. After a power cut a part may have its length but not its
content, so a later process trusts only the bytes that the note counts: those that were flushed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from types import TracebackType

from oarlock.system.atomic_file import sync_folder, write_durably

_FLUSH = 64 << 20  # bytes between two notes: the most that a killed process costs
_CHUNK = 1 << 20


class PartFile:
    """Appends bytes. `key` identifies their source; another key starts over."""

    def __init__(self, target: Path, key: str) -> None:
        self._target = target
        self._path = target.with_name(f"{target.name}.part")
        self._note = target.with_name(f"{target.name}.part.json")
        self._key = hashlib.sha256(key.encode()).hexdigest()  # a URL may contain a password
        self.at = 0
        self.size: int | None = None
        self.tag: str | None = None
        self._hash = hashlib.sha256()
        self._flushed = 0

    def __enter__(self) -> PartFile:
        if self._path.is_dir():  # the source was a folder
            shutil.rmtree(self._path)
        self._file = self._path.open("ab")
        self._resume()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file.closed:
            return
        try:
            self._keep()
        except OSError:  # a full disk: the previous note still holds
            pass
        self._file.close()

    @property
    def is_whole(self) -> bool:
        """Whether all of it is here, as far as its size is known."""
        return self.size is not None and self.at == self.size

    @property
    def sha256(self) -> str:
        """The checksum of all bytes so far."""
        return self._hash.hexdigest()

    def begin(self, at: int, size: int | None, tag: str | None) -> None:
        """Prepare for bytes from `at` on, which is where the part ends, or 0."""
        if at == 0:
            self._restart()
        self.size, self.tag = size, tag

    def write(self, chunk: bytes) -> None:
        """Append, and now and then flush to disk."""
        self._file.write(chunk)
        self._hash.update(chunk)
        self.at += len(chunk)
        if self.at - self._flushed >= _FLUSH:
            self._keep()

    def discard(self) -> None:
        """Drop all bytes so far: they are wrong."""
        self._restart()
        self.size = self.tag = None

    def complete(self, modified_ns: int | None) -> None:
        """Rename the part, which is complete, to its final name."""
        self._file.flush()
        if modified_ns is not None:
            os.utime(self._file.fileno(), ns=(modified_ns, modified_ns))
        os.fsync(self._file.fileno())
        self._file.close()
        self._path.replace(self._target)
        sync_folder(self._target.parent)
        self._note.unlink(missing_ok=True)

    def _keep(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._flushed = self.at
        note = {"key": self._key, "size": self.size, "tag": self.tag, "flushed": self.at}
        write_durably(self._note, json.dumps(note).encode())

    def _resume(self) -> None:
        try:
            note = json.loads(self._note.read_bytes())
            if note["key"] == self._key and note["flushed"] <= self._path.stat().st_size:
                self.at, self.size, self.tag = note["flushed"], note["size"], note["tag"]
        except (OSError, ValueError, LookupError, TypeError):
            pass
        self._flushed = self.at
        self._file.truncate(self.at)
        with self._path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                self._hash.update(chunk)

    def _restart(self) -> None:
        self._note.unlink(missing_ok=True)  # first, so that it never counts bytes of another content
        self._file.flush()
        self._file.truncate(0)
        self._hash = hashlib.sha256()
        self.at = self._flushed = 0
