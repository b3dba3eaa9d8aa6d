"""`oarlock.data.once`: one task of a machine creates the data folder, and the others wait for it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Callable

from oarlock.system.atomic_file import write_whole


def once(folder: str | os.PathLike[str], make: Callable[[Path], object], *, wait: float = 3600) -> Path:
    """Fill `folder` by `make(folder)` exactly once, however many tasks of this machine call this together.

    The first task runs `make` and the others wait, for at most `wait` seconds. If it dies half-way, what it
    made is removed and `make` runs again. A folder with files that `once` did not make is never touched.
    """
    folder = Path(folder)
    marks = folder / ".once"
    if (marks / "done").exists():
        return folder
    _claim(folder, marks)
    with _locked(marks / "lock", wait, f"make {folder}"):
        if not (marks / "done").exists():
            _clear(folder, marks)
            make(folder)
            write_whole(marks / "done", b"made\n")
    return folder


def _claim(folder: Path, marks: Path) -> None:
    """Mark an empty folder as made here. Only such a folder may be cleared later."""
    folder.mkdir(parents=True, exist_ok=True)
    is_used = any(folder.iterdir())
    # Checked last: another task may have begun in between, and it creates its marks before its files.
    if is_used and not marks.exists():
        raise FileExistsError(f"{folder} has files that were not made here; use an empty or a new folder")
    marks.mkdir(exist_ok=True)


def _clear(folder: Path, marks: Path) -> None:
    for path in folder.iterdir():
        if path == marks:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def _locked(path: Path, wait: float, purpose: str) -> Iterator[None]:
    """The kernel frees the lock when its holder ends, however it ends."""
    import fcntl  # not on Windows, where the rest of this module works

    deadline = time.monotonic() + wait
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"waited {wait:g} s for another task to {purpose}") from None
                time.sleep(0.02)
        yield
