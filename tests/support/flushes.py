"""The order in which a process flushes files to the disk and renames them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows: `flush NAME SIZE` (a file), `flush NAME/` (a folder), `rename NAME NAME`."""
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flush(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        seen.append(f"flush {path.name}/" if path.is_dir() else f"flush {path.name} {os.fstat(fd).st_size}")
        fsync(fd)

    def rename(source: Any, target: Any, **options: Any) -> None:
        seen.append(f"rename {Path(source).name} {Path(target).name}")
        replace(source, target, **options)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    return seen


def durable(path: Path) -> list[str]:
    """Return what is recorded if a file is written so that a power cut leaves the old or the new content."""
    draft = f".{path.name.lstrip('.')}.part"
    return [
        f"flush {draft} {path.stat().st_size}",
        f"rename {draft} {path.name}",
        f"flush {path.parent.name}/",
    ]
