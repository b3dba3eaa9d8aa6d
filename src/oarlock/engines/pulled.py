"""What a pull has brought, and how it is put into its place: whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


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


def put(new: Path, final: Path, beside: Path) -> None:
    """By renaming: whoever looks sees the old folder or the new one."""
    old = beside / f"old-{final.name}"
    if final.exists() or final.is_symlink():
        final.rename(old)
    try:
        new.rename(final)
    except OSError:
        if old.exists():
            old.rename(final)
        raise
