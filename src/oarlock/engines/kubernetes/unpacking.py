"""Unpacking what came from a pod. The pod's program may have written anything, so nothing of it is trusted:
no name or link leads out of the folder, nothing but files, folders and links is made."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from oarlock.errors import OarlockError
from oarlock.reading.wording import printable

_PIECE = 1 << 20


def unpack(pieces: Iterator[bytes], place: Path) -> tuple[int, int]:
    """A tar stream into an empty folder. How many files, and bytes. Raises OarlockError."""
    files = size = 0
    links: list[tuple[Path, str]] = []
    try:
        stream = cast("IO[bytes]", _Stream(pieces))
        with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                path = place / _inside(member.name)
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif member.issym():
                    links.append((path, member.linkname))
                elif member.isreg():
                    size += _write(archive, member, path)
                    files += 1
                else:
                    raise _refused(member.name, "neither a file nor a folder")
    except tarfile.TarError as problem:
        raise OarlockError(f"what came from the pod is no archive: {problem}") from None
    _link(place, links)
    return files + len(links), size


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise _refused(name, "it leads out of the folder")
    return path


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = archive.extractfile(member)
    assert source is not None
    try:
        with path.open("xb") as file:
            while piece := source.read(_PIECE):
                file.write(piece)
    except FileExistsError:
        raise _refused(member.name, "it came twice") from None
    path.chmod(0o755 if member.mode & 0o100 else 0o644)
    os.utime(path, (member.mtime, member.mtime))
    return member.size


def _link(place: Path, links: list[tuple[Path, str]]) -> None:
    """Last of all, so that nothing is written through one; none may lead out, not even by way of others."""
    for path, target in links:
        path.parent.mkdir(parents=True, exist_ok=True)
        if Path(target).is_absolute():
            raise _refused(target, "it leads out of the folder")
        try:
            path.symlink_to(target)
        except FileExistsError:
            raise _refused(str(path.relative_to(place)), "it came twice") from None
    root = place.resolve()
    for path, target in links:
        if not Path(os.path.realpath(path)).is_relative_to(root):
            raise _refused(target, "it leads out of the folder")


def _refused(name: str, why: str) -> OarlockError:
    return OarlockError(f"refused what the pod sent: {printable(name)}: {why}")


class _Stream:
    """Pieces of any size, read as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = bytearray()

    def read(self, size: int) -> bytes:
        while len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += piece
        found = bytes(self._rest[:size])
        del self._rest[:size]
        return found
