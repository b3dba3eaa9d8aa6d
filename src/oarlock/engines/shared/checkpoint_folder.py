"""List the checkpoints of a folder, and delete some.

On this machine it is imported; a pod gets it as text (`python3 -c`) together with `store`. So it imports
nothing else of Oarlock, and any Python 3.9 runs it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oarlock.checkpoints.manifest import Manifest, position
from oarlock.checkpoints.store import Checkpoint, Store, verify

Entry = dict[str, Any]  # name, step, generation, epoch, saved, workers, size, metrics, where, state, why
FOLDER = "folder"


class Folder:
    """A folder of checkpoints on this machine."""

    def __init__(self, path: str) -> None:
        self._store = Store(path)

    def entries(self, verifies: bool) -> list[Entry]:
        """List all checkpoints but drafts, newest first; `verifies` reads every byte."""
        found = []
        for name in self._store.names():
            path = self._store.folder / name
            held = self._store.read(path)
            manifest = held.manifest if isinstance(held, Checkpoint) else {}
            why = held if isinstance(held, str) else verify(held) if verifies else None
            if path.exists():  # otherwise retention has deleted it meanwhile
                found.append(entry(name, FOLDER, manifest, why, verifies) | {"size": _size(path)})
        return found

    def newest(self) -> str | None:
        """Return the name of the newest whole checkpoint."""
        found, _ = self._store.newest()
        return found.name if found else None

    def fence(self) -> tuple[str, int] | None:
        """Return the run, and its generation, that may add checkpoints now."""
        return self._store.fence()

    def delete(self, names: Sequence[str]) -> int:
        """Delete checkpoints and return the number of bytes freed. Raises OSError."""
        freed = 0
        for name in names:
            if position(name) is None:
                raise OSError(errno.EINVAL, "not the name of a checkpoint", name)
            path = self._store.folder / name
            taken = _taken(path)
            try:
                self._store.delete(Checkpoint(path, 0, 0, {}))
                freed += taken
            except FileNotFoundError:
                pass  # another process was faster
        return freed


def entry(name: str, where: str, manifest: Manifest, why: str | None, is_verified: bool) -> Entry:
    """What `oarlock checkpoints` shows of a checkpoint; `why` is what is wrong with it."""
    _, step, generation = name.partition("_")[0].split("-")
    metrics = manifest.get("metrics") or {}
    return {
        "name": name,
        "step": int(step),
        "generation": int(generation[1:]),
        "epoch": _number(manifest.get("epoch")),
        "saved": _number(manifest.get("saved")),
        "workers": _number(manifest.get("world")),
        "size": sum(file["size"] for file in manifest.get("files", {}).values()),
        "metrics": {key: _plain(value) for key, value in metrics.items()},
        "where": where,
        "state": "broken" if why else "whole" if is_verified else "complete",
        "why": why,
    }


def _number(value: Any) -> Any:
    """None for what is not a number: a program may write anything into a manifest."""
    return value if type(value) in (int, float) and math.isfinite(value) else None


def _plain(value: Any) -> Any:
    """nan and the infinities are not valid JSON."""
    return value if _number(value) is not None or isinstance(value, (bool, str)) else str(value)


def _size(path: Path) -> int:
    return sum(one.st_size for one in _files(path))


def _taken(path: Path) -> int:
    """The space on disk: a sparse file takes less than its length."""
    return sum(one.st_blocks * 512 for one in _files(path))


def _files(path: Path) -> Iterator[os.stat_result]:
    for one in path.rglob("*"):
        try:
            found = one.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode):
            yield found


def main() -> None:
    """Carry out the order in the argument, {"folder", "do", ...} as JSON, and print the answer as JSON."""
    order = json.loads(sys.argv[1])
    folder = Folder(order["folder"])
    try:
        if order["do"] == "entries":
            answer: Any = folder.entries(order["verifies"])
        elif order["do"] == "delete":
            answer = folder.delete(order["names"])
        else:
            answer = folder.newest() if order["do"] == "newest" else folder.fence()
    except OSError as error:
        sys.exit(f"{error.filename or order['folder']}: {error.strerror or error}")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
