"""Download the files that a manifest names, piece by piece, and compare them with their checksums.

The caller says where the pieces come from: an agent's downloader retries for minutes, a client only
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

Receive = Callable[[str, int, int], bytes]  # file, first byte, end (exclusive): returns at most that much
OnPiece = Callable[[str, int], None]  # file, bytes that just arrived


class DamagedError(Exception):
    """A file in the store does not match its manifest."""


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
    """Read all files without keeping them. Raises DamagedError."""
    for file, entry in files.items():
        for _ in _pieces(file, entry, receive):
            pass


def _pieces(file: str, entry: FileEntry, receive: Receive) -> Iterator[bytes]:
    """The pieces of a file. Raises DamagedError after the last piece at the latest."""
    size, crc, at = entry["size"], 0, 0
    while at < size:
        piece = receive(file, at, min(at + PART, size))
        if not piece:
            raise DamagedError(f"{file} ends after {at} bytes")
        crc, at = zlib.crc32(piece, crc), at + len(piece)
        yield piece
    if f"{crc:08x}" != entry["crc32"]:
        raise DamagedError(f"{file} has changed since it was written")
