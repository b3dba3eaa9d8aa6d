"""`oarlock.data.once`: a data folder is made by one task of this machine, and the others wait for it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Callable


def once(folder: str | os.PathLike[str], make: Callable[[Path], object], *, wait: float = 3600) -> Path:
    """`folder`, filled by `make(folder)` exactly once, however many tasks of this machine ask together.

    The first one makes it and the others wait. Who died half-way leaves no mark of being done: what it
    had made is removed and `make` runs again. A folder with somebody else's files is never touched.
    """
    folder = Path(folder)
    marks = folder / ".once"
    if (marks / "done").exists():
        return folder
    _claim(folder, marks)
    with _locked(marks / "lock", wait, f"{folder} to be made"):
        if not (marks / "done").exists():
            _clear(folder, marks)
            make(folder)
            draft = marks / "draft"
            draft.write_text("made\n")
            draft.replace(marks / "done")
    return folder


def _claim(folder: Path, marks: Path) -> None:
    """Only a folder that was empty becomes ours, because ours may be cleared."""
    folder.mkdir(parents=True, exist_ok=True)
    is_used = any(folder.iterdir())
    # Looked at last: another task may have begun in between, and it makes its marks before its files.
    if is_used and not marks.exists():
        raise FileExistsError(f"{folder} holds files that were not made here; name an empty or a new folder")
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
    """The kernel gives the lock back when its holder ends, however it ends."""
    import fcntl  # not on Windows, where the rest of this module works

    deadline = time.monotonic() + wait
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"waited {wait:g} s for {purpose} by another task") from None
                time.sleep(0.02)
        yield
