"""The result of a pull, and how files are put into place: all of them or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oarlock.errors import OarlockError

Show = Callable[[int, int], None]  # called with the bytes received so far and their total


@dataclass
class Pulled:
    """What was copied to this machine."""

    source: str  # the pod that sent it, or the URL of a bucket
    folders: dict[str, Path] = field(default_factory=dict)  # by kind; without those that do not exist
    absent: list[str] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)  # in a bucket, not on the claim
    changed: list[str] = field(default_factory=list)  # files that changed while they were read
    skipped: list[str] = field(default_factory=list)  # links to files that were not copied
    files: int = 0
    size: int = 0


def is_taken(path: Path) -> bool:
    """Return whether a path exists; an empty folder counts as absent."""
    if path.is_dir() and not path.is_symlink():
        return any(is_taken(inside) for inside in path.iterdir())
    return path.exists() or path.is_symlink()


def check_room(size: int, folder: Path) -> None:
    """Raise OarlockError if the disk has too little space."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise OarlockError(f"{folder} has {free:,} bytes of space left, but {size:,} are needed")


def put_all(moves: Sequence[tuple[Path, Path]], beside: Path) -> None:
    """Rename each new folder to its final path, all of them or none. A reader sees the old or the new one."""
    done: list[tuple[Path, Path]] = []
    try:
        for number, (new, final) in enumerate(moves):
            if final.exists() or final.is_symlink():
                old = beside / f"old-{number}"
                final.rename(old)
                done.append((old, final))
            new.rename(final)
            done.append((final, new))
    except OSError:
        for now, before in reversed(done):
            now.rename(before)
        raise
