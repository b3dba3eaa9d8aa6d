"""Code compiled by torch, Triton and JAX, kept for restarts and later runs.

All name an entry after everything that went into it, including framework versions, so all programs, and runs
at the same time, can share one folder. If nothing outlives a run, the run's own folder is used.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from oarlock.agent.protocol.spec import Spec

LARGEST = 10 << 30  # bytes; what was not used for longest goes first
FOLDERS = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "JAX_COMPILATION_CACHE_DIR": "jax",
}
# JAX itself keeps what took it a second or more. A program has hundreds of shorter compilations: on a CPU,
# 20 ms each. Keeping one takes 1 ms and 3 kB, and a restart finds it in 5 ms (bench/launch_one.py).
_SHORTEST = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


class _Entry(NamedTuple):
    used: float
    size: int
    path: Path


def variables(spec: Spec) -> dict[str, str]:
    """Where the frameworks keep compiled code, and what JAX keeps. The user's own settings win over these."""
    folder = _folder(spec)
    return {**{name: f"{folder}/{part}" for name, part in FOLDERS.items()}, **_SHORTEST}


def trim(spec: Spec, largest: int = LARGEST) -> None:
    """Delete the least recently used entries, if there is more than `largest`.

    A run that misses one compiles again.
    """
    entries = list(_entries(_folder(spec)))
    excess = sum(entry.size for entry in entries) - largest
    for entry in sorted(entries):
        if excess <= 0:
            return
        try:
            _delete(entry.path)
        except OSError:
            continue  # another run is trimming, too
        excess -= entry.size


def _folder(spec: Spec) -> Path:
    return Path(spec.cache or f"{spec.folder}/cache")


def _delete(path: Path) -> None:
    if path.is_dir():
        path = path.rename(path.with_name(f"{path.name}.{os.getpid()}.deleted"))  # at once, for other runs
        shutil.rmtree(path)
    else:
        path.unlink()


def _entries(folder: Path) -> Iterator[_Entry]:
    """Files, and the folders of Triton's kernels: with some of its files gone, a kernel cannot be loaded."""
    for here, folders, names in os.walk(folder):
        files = [entry for name in names if (entry := _file(Path(here, name)))]
        if files and any(name.startswith("__grp__") for name in names):
            folders.clear()
            yield _Entry(max(file.used for file in files), sum(file.size for file in files), Path(here))
        else:
            yield from files


def _file(path: Path) -> _Entry | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return _Entry(max(found.st_atime, found.st_mtime), found.st_size, path)
