"""A file or folder of this machine as a source. It is copied, so that later changes to it do not change the
data of a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from oarlock.agent.ingest.origin import FetchError, Opened
from oarlock.run.quick_dataclass import dataclass

_CHUNK = 1 << 20  # bytes


@dataclass(frozen=True)
class PathOrigin:
    """One file of this machine."""

    path: Path
    size: int
    modified_ns: int

    @property
    def shown(self) -> str:
        """Its path."""
        return str(self.path)

    def open(self, at: int, tag: str | None) -> Opened:
        """Read from byte `at` if the file has not been written since."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise _unreadable(self.path, error) from None
        now = f"{found.st_size} {found.st_mtime_ns} {found.st_ino}"
        start = at if tag == now else 0
        return Opened(start, found.st_size, now, _chunks(self.path, start))


def find(path: Path) -> PathOrigin | dict[str, PathOrigin]:
    """The file, or all files below the folder, by their names in it."""
    try:
        if not path.is_dir():
            return _origin(path)
        return {name: _origin(path / name) for name in sorted(_names(path, "", frozenset()))}
    except OSError as error:
        raise _unreadable(error.filename or path, error) from None


def _origin(path: Path) -> PathOrigin:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise FetchError(f"{path} is neither a file nor a folder")
    return PathOrigin(path, found.st_size, found.st_mtime_ns)


def _names(top: Path, below: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    """All files, including those behind links. `above`: the folders above this one, where a link may lead."""
    here = (top / below).stat()
    if (here.st_dev, here.st_ino) in above:
        raise FetchError(f"{top / below} is a link to a folder that it is in")
    with os.scandir(top / below) as entries:
        for entry in entries:
            name = f"{below}{entry.name}"
            if entry.is_dir():
                yield from _names(top, f"{name}/", above | {(here.st_dev, here.st_ino)})
            else:
                yield name


def _chunks(path: Path, start: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(start)
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str | Path, error: OSError) -> FetchError:
    return FetchError(f"{path} cannot be read: {error.strerror or error}")
