"""`oarlock.data.once`: one task creates the data folder, and the others wait for it.

Per machine, a lock in the folder decides which task. Per run, the leader task does it and its agent notifies
the others, so a machine that does not see the folder finds out instead of waiting forever.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Literal

from oarlock.system.atomic_file import write_whole
from oarlock.system.polling import wait_for
from oarlock.training.task import channel
from oarlock.training.task.context import Context, current

_POLL = 0.05  # seconds
_ASK_AGAIN = 5.0  # seconds: an agent drops a line to a task that does not read
_VISIBLE = 60.0  # seconds until a shared folder shows what another machine wrote; NFS caches for 30


def once(
    folder: str | os.PathLike[str],
    make: Callable[[Path], object],
    *,
    per: Literal["machine", "run"] = "machine",
    wait: float = 3600,
) -> Path:
    """Fill `folder` with `make(folder)` exactly once, no matter how many tasks call this together.

    `per="machine"`: the first task on each machine runs `make`, and the others there wait at most `wait`
    seconds. `per="run"`: the chief, or worker 0, runs it for all machines, which must share the folder.
    If `make` dies halfway, what it made is removed and it runs again. A folder with files that `once` did
    not make is never touched.
    """
    if per not in ("machine", "run"):
        raise ValueError(f"per={per!r}: once is per 'machine' or per 'run'")
    folder, task = Path(folder), current()
    if per == "run" and not task.is_chief:
        if not _is_done(folder):
            _await_chief(folder, task, wait)
        return folder
    if not _is_done(folder):
        if per == "run" and task.world > 1:
            task.note(f"makes {folder}, for which the other tasks wait")
        _make(folder, make, wait)
    if per == "run":
        channel.send({"kind": "made", "folder": _key(folder, task)}, patience=30)
    return folder


def _make(folder: Path, make: Callable[[Path], object], wait: float) -> None:
    marks = folder / ".once"
    _claim(folder, marks)
    with _locked(marks / "lock", wait, f"make {folder}"):
        if not _is_done(folder):
            _clear(folder, marks)
            make(folder)
            write_whole(marks / "done", b"made\n")


def _await_chief(folder: Path, task: Context, wait: float) -> None:
    """Wait until the mark is here. Without our launcher, no process says when it should be."""
    key = _key(folder, task)
    now = time.monotonic()
    deadline, ask_at, visible_by = now + wait, now, None
    while not _is_done(folder):
        now = time.monotonic()
        if visible_by is None and channel.requested(f"made:{key}"):
            visible_by = now + _VISIBLE
        if visible_by is not None and now > visible_by:
            raise FileNotFoundError(
                f"the chief has made {folder}, and this machine does not see it: per='run' is for a folder"
                " that all machines share; use per='machine' to make it on each of them"
            )
        if visible_by is None and now > deadline:
            raise TimeoutError(
                f"waited {wait:g} s for the chief, or worker 0, to make {folder}; it has to call once(), too"
            )
        if visible_by is None and now >= ask_at:
            channel.send({"kind": "await", "folder": key})
            ask_at = now + _ASK_AGAIN
        time.sleep(_POLL)


def _is_done(folder: Path) -> bool:
    return (folder / ".once" / "done").exists()


def _key(folder: Path, task: Context) -> str:
    """The same on every machine, even if their data folders have different paths."""
    here, data = Path.cwd() / folder, Path.cwd() / task.data
    name = here.relative_to(data) if data in (here, *here.parents) else here
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _claim(folder: Path, marks: Path) -> None:
    """Mark an empty folder as made here. Only a marked folder may be cleared later."""
    folder.mkdir(parents=True, exist_ok=True)
    is_used = any(folder.iterdir())
    # Checked last: another task may have started in between, and it creates its marks before its files.
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

    def is_locked() -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    with path.open("ab") as file:
        try:
            wait_for(is_locked, "lock", wait, every=0.02)
        except TimeoutError:
            raise TimeoutError(f"waited {wait:g} s for another task to {purpose}") from None
        yield
