"""Replacing a file as a whole: after a crash or a power cut there is the old content or the new, never half.

Without the fsync a file system may do the rename first, and leave an empty file.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    draft = path.with_name(f".{path.name}.part")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """So that what was renamed within it stays renamed."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
