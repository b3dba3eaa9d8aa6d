"""Download the files that a manifest names, piece by piece, and compare them with their checksums.

Where the pieces come from is the caller's: the downloader of an agent retries for minutes, a client only
a few times.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Callable

from oarlock.checkpoints.bucket import PART
from oarlock.checkpoints.manifest import FileEntry

Receive = Callable[[str, int, int], bytes]  # file, first byte, byte behind the last: at most that much
OnPiece = Callable[[str, int], None]  # file, bytes that have just come


class DamagedError(Exception):
    """A file in the store is not what its manifest says."""


def download(files: Mapping[str, FileEntry], folder: Path, receive: Receive, on_piece: OnPiece) -> None:
    """Write all files below `folder` and flush them to the disk. Raises DamagedError, or OSError."""
    for file, entry in files.items():
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as sink:
            for piece in _pieces(file, entry, receive):
                sink.write(piece)
                on_piece(file, len(piece))
            sink.flush()
            os.fsync(sink.fileno())


def compare(files: Mapping[str, FileEntry], receive: Receive) -> None:
    """Read all files and keep none. Raises DamagedError."""
    for file, entry in files.items():
        for _ in _pieces(file, entry, receive):
            pass


def _pieces(file: str, entry: FileEntry, receive: Receive) -> Iterator[bytes]:
    """All of a file. What is wrong with it is known, and raised, after the last piece at the latest."""
    size, crc, at = entry["size"], 0, 0
    while at < size:
        piece = receive(file, at, min(at + PART, size))
        if not piece:
            raise DamagedError(f"{file} ends after {at} bytes")
        crc, at = zlib.crc32(piece, crc), at + len(piece)
        yield piece
    if f"{crc:08x}" != entry["crc32"]:
        raise DamagedError(f"{file} has changed since it was written")
