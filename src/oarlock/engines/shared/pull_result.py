"""What a pull has brought, and how it is put into its place: whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oarlock.errors import OarlockError

Show = Callable[[int, int], None]  # called with the bytes received so far and their total


@dataclass
class Pulled:
    source: str  # the pod that sent it, or the place in a bucket
    folders: dict[str, Path] = field(default_factory=dict)  # by their name; absent where there was nothing
    absent: list[str] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)  # in a bucket, not on the claim
    changed: list[str] = field(default_factory=list)  # written to while they were read
    skipped: list[str] = field(default_factory=list)  # links to what does not come along
    files: int = 0
    size: int = 0


def is_taken(path: Path) -> bool:
    """Whether something is there; an empty folder is nothing."""
    if path.is_dir() and not path.is_symlink():
        return any(is_taken(inside) for inside in path.iterdir())
    return path.exists() or path.is_symlink()


def check_room(size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise OarlockError(f"{size:,} bytes are to come, and {folder} has room for {free:,}")


def put_all(moves: Sequence[tuple[Path, Path]], beside: Path) -> None:
    """By renaming: whoever looks sees the old folder or the new one. All of them or none."""
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
