"""Code compiled by torch and JAX, kept for restarts and later runs.

Both name an entry after everything that went into it, including framework versions, so all programs, and runs
at the same time, can share one folder. If nothing outlives a run, the run's own folder is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from oarlock.agent.protocol.spec import Spec

LARGEST = 10 << 30  # bytes; the least recently used files go first


class _Entry(NamedTuple):
    used: float
    size: int
    path: Path


def variables(spec: Spec) -> dict[str, str]:
    """Where the frameworks keep compiled code. The user's own settings win over these."""
    folder = _folder(spec)
    return {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax"}


def trim(spec: Spec, largest: int = LARGEST) -> None:
    """Delete the least recently used files, if there is more than `largest`.

    A run that misses one compiles again.
    """
    entries = list(_entries(_folder(spec)))
    excess = sum(entry.size for entry in entries) - largest
    for entry in sorted(entries):
        if excess <= 0:
            return
        try:
            entry.path.unlink()
        except OSError:
            continue  # another run is trimming, too
        excess -= entry.size


def _folder(spec: Spec) -> Path:
    return Path(spec.cache or f"{spec.folder}/cache")


def _entries(folder: Path) -> Iterator[_Entry]:
    for here, _, names in os.walk(folder):
        for name in names:
            path = Path(here, name)
            try:
                found = path.lstat()
            except OSError:
                continue
            yield _Entry(max(found.st_atime, found.st_mtime), found.st_size, path)
