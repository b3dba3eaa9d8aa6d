"""Unpack what a pod sends. Its program may have written anything, so nothing in it is trusted.

Everything goes into a new folder that no other process sees. Every header is checked before anything is made
of it, and links are made last, after all of them were checked: nothing is ever written through one. A refused
archive leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from oarlock.errors import OarlockError
from oarlock.system.safe_names import leads_out, stays_inside
from oarlock.wording import printable

_PIECE = 1 << 20
_LONGEST_HEADER = 1 << 14  # bytes that carry a long name
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
# What our sender writes: no hard links, devices or sparse files; no PAX headers, which can hide those.
_KNOWN = (*_FILES, *_LONG_NAMES, tarfile.DIRTYPE, tarfile.SYMTYPE)


def unpack(stream: Stream, place: Path, most: int) -> tuple[int, int]:
    """Unpack a tar stream of limited size into a new folder; returns the number of files and bytes.

    If it raises OarlockError or OSError, there is no folder.
    """
    place.mkdir(mode=0o700)
    try:
        with tarfile.open(
            fileobj=cast("IO[bytes]", stream),
            mode="r|",
            encoding="utf-8",
            errors="surrogateescape",
            tarinfo=_Member,
        ) as archive:
            return _unpack(archive, place, most)
    except BaseException as problem:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(problem, (tarfile.TarError, ValueError)):
            raise OarlockError(f"what came from the pod is not an archive: {problem}") from None
        raise


def _unpack(archive: tarfile.TarFile, place: Path, most: int) -> tuple[int, int]:
    files = size = 0
    links: dict[Path, str] = {}
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # else it keeps all of them in memory
        if not stays_inside(member.name):
            raise _refused(member.name, "no name for something inside the folder")
        path = place / member.name
        size += member.size
        if size > most:
            raise _refused(member.name, "it is more than the pod announced")
        try:
            (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
            if member.issym():
                _judge_link(member)
                if path in links:
                    raise FileExistsError
                links[path] = member.linkname
            elif member.isreg():
                _write(archive, member, path)
        except (FileExistsError, NotADirectoryError):
            raise _refused(member.name, "it came twice") from None
        files += not member.isdir()
    for path, target in links.items():
        try:
            path.symlink_to(target)
        except FileExistsError:
            raise _refused(str(path.relative_to(place)), "it came twice") from None
    return files, size


class _Member(tarfile.TarInfo):
    """Check an entry as soon as its header is read: tarfile would do what the header says."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member = super().frombuf(buf, encoding, errors)
        if member.type not in _KNOWN:
            raise _refused(member.name, "neither a plain file nor a folder nor a link")
        most = {**dict.fromkeys(_LONG_NAMES, _LONGEST_HEADER), **dict.fromkeys(_FILES, 1 << 62)}
        if not 0 <= member.size <= most.get(member.type, 0):
            raise _refused(member.name, f"it cannot have {member.size} bytes")
        return member


def _judge_link(member: tarfile.TarInfo) -> None:
    """Check that a link stays in its top folder: `model/a` leads to something in `model`."""
    if leads_out(member.name.partition("/")[2], member.linkname):
        raise _refused(member.name, f"it leads out of the folder, to {printable(member.linkname)}")


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = archive.extractfile(member)
    assert source is not None
    with path.open("xb") as file:
        while piece := source.read(_PIECE):
            file.write(piece)
        os.fchmod(file.fileno(), 0o755 if member.mode & 0o100 else 0o644)
        file.flush()
        with suppress(OverflowError):  # a time out of range
            os.utime(file.fileno(), (member.mtime, member.mtime))


def _refused(name: str, why: str) -> OarlockError:
    return OarlockError(f"refused what the pod sent: {printable(name[:200])}: {why}")


class Stream:
    """A stream of pieces of any size, read as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = bytearray()

    def read(self, size: int) -> bytes:
        """Wait for that many bytes; return fewer only at the end."""
        while len(self._rest) < size and self._receive():
            pass
        return self._take(size)

    def line(self, most: int) -> bytes:
        """Read to the first newline; all that arrived if there is none."""
        while b"\n" not in self._rest and len(self._rest) < most and self._receive():
            pass
        return self._take(self._rest.find(b"\n") + 1 or most)

    def _receive(self) -> bool:
        piece = next(self._pieces, None)
        self._rest += piece or b""
        return piece is not None

    def _take(self, size: int) -> bytes:
        found = bytes(self._rest[:size])
        del self._rest[:size]
        return found
