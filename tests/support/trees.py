"""A folder and all that is below it, to be compared: nothing was created, changed or deleted."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """By path: what it is, its mode, and its content or where it leads. No link is followed."""
    found: dict[str, tuple[object, ...]] = {}
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(here, name)
            mode = path.lstat().st_mode
            content: object = None
            if stat.S_ISLNK(mode):
                content = path.readlink()
            elif stat.S_ISREG(mode):
                content = (path.read_bytes(), path.lstat().st_mtime_ns)
            found[str(path.relative_to(folder))] = (mode, content)
    return found
