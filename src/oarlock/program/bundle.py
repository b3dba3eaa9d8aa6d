"""The program's folder as one archive for a pod; the same folder always gives the same bytes."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oarlock.errors import JobError
from oarlock.program import folder_scan, oversize
from oarlock.program.credentials import is_key
from oarlock.program.folder_scan import FolderEntry
from oarlock.program.ignore_files import CREDENTIAL

LIMIT = 8 * 1024 * 1024  # compressed


@dataclass(frozen=True)
class Bundle:
    """A packed folder."""

    data: bytes  # a .tar.gz
    files: tuple[str, ...]  # relative, with `/`; os.fsdecode reads names that are not UTF-8
    size: int  # uncompressed
    withheld: tuple[str, ...] = ()  # stays behind because it may hold credentials


def pack(folder: Path, more: Mapping[str, Path] | None = None) -> Bundle:
    """Pack everything below the folder that is not ignored; and `more`: names in the archive, and files.

    Raises JobError if the folder cannot be read or more than `LIMIT` bytes would travel.
    """
    folder = folder.resolve()
    found, withheld = folder_scan.scan(folder)
    found += [FolderEntry(name, str(path), path.stat().st_size) for name, path in (more or {}).items()]
    squeezed = Squeezed()
    files: list[str] = []
    size = 0
    try:
        # Names are written as the bytes they are, so that a pod in any locale unpacks the same names.
        with tarfile.TarFile(
            fileobj=squeezed,  # type: ignore[arg-type]  # write and tell are all it needs
            mode="w",
            format=tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            for entry in found:
                written = _add(archive, entry)
                if written is CREDENTIAL:
                    withheld.append(entry.path)
                elif isinstance(written, int):
                    files.append(entry.path)
                    size += written
        return Bundle(squeezed.finish(), tuple(files), size, tuple(sorted(withheld)))
    except OverLimit:
        sizes = {entry.path: entry.size for entry in found}
        raise JobError(oversize.message(str(folder), sizes)) from None


class OverLimit(Exception):
    """More bytes would travel than the limit allows."""


class Squeezed:
    """The file that the archive is written to: compresses, and raises once the limit is exceeded."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(wbits=31)  # gzip's format, without a time in it
        self._data = bytearray()
        self._written = 0

    def write(self, data: bytes) -> int:
        """Compress more."""
        self._keep(self._compressor.compress(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        """How much was written."""
        return self._written

    def finish(self) -> bytes:
        """Return all of it."""
        self._keep(self._compressor.flush())
        return bytes(self._data)

    def _keep(self, compressed: bytes) -> None:
        self._data += compressed
        if len(self._data) > LIMIT:
            raise OverLimit


def _add(archive: tarfile.TarFile, entry: FolderEntry) -> int | str | None:
    """Add one entry: its bytes; CREDENTIAL if it does not travel; None if it was deleted since the scan."""
    member = tarfile.TarInfo(entry.path)  # mtime, uid and gid are 0, without owner names
    if entry.link is not None:
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry.link, 0o777
        archive.addfile(member)
        return 0
    member.mode = 0o755 if entry.is_executable else 0o644
    try:
        with open(entry.source, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(LIMIT)
            if is_key(entry.path, content) and not entry.is_named:
                return CREDENTIAL
            member.size = len(content)
            if len(content) < LIMIT:  # the whole file, even if it changed since the scan
                archive.addfile(member, io.BytesIO(content))
            else:
                member.size = max(LIMIT, os.fstat(file.fileno()).st_size)
                file.seek(0)
                archive.addfile(member, file)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as problem:
        raise folder_scan.unreadable(entry.source, problem) from None
    return member.size


def _without_waiting(path: str, flags: int) -> int:
    """Open without blocking: since the scan the file may have become a pipe, or a link."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
