"""Replaces a file as a whole: after a crash or a power cut it has the old content or the new, never half.

Without the fsync a file system may rename first and leave an empty file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a draft, flush it to disk, rename it. When this returns, the content is on disk."""
    draft = _draft(path)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    draft.replace(path)
    sync_folder(path.parent)


def write_whole(path: Path, content: bytes, writer: str = "part") -> None:
    """Write a draft and rename it: readers see all of it or nothing. A power cut may lose it.

    `writer` names the draft. Processes that may write the same file at the same time need different ones.
    """
    draft = _draft(path, writer)
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)  # a full disk needs the space
        raise


@contextmanager
def whole_file(path: Path, writer: str = "part") -> Iterator[IO[bytes]]:
    """Do the same in pieces, inside a `with` block. If the block raises, the file stays as it is."""
    draft = _draft(path, writer)
    try:
        with draft.open("wb") as file:
            yield file
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Flush the names in a folder to disk: files renamed in it stay renamed."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _draft(path: Path, writer: str = "part") -> Path:
    return path.with_name(f".{path.name.lstrip('.')}.{writer}")
