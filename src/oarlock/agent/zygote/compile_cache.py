"""What torch and JAX have compiled, kept for restarts and for later runs.

Both name an entry after all that went into it, versions of the framework included, so one folder serves all
programs, and runs that use it at the same time. Where nothing outlives a run, its own folder has to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from oarlock.agent.protocol.spec import Spec

LARGEST = 10 << 30  # bytes; what was not used for longest goes first


class _Entry(NamedTuple):
    used: float
    size: int
    path: Path


def variables(spec: Spec) -> dict[str, str]:
    """Where the frameworks keep it. The user's own settings win over these."""
    folder = _folder(spec)
    return {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax"}


def trim(spec: Spec, largest: int = LARGEST) -> None:
    """Delete files that were not used for long, if there is more than `largest`.

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
            continue  # another run trims, too
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
