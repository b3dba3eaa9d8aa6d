"""Fetch the sources of an ingest: a file or folder of this machine, https://, s3://, gs://, az://.

The target exists only once it is whole, on disk and has the right checksum. Until then it is next to it, as
`<name>.part`, from which a later call resumes. An existing target is kept.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Callable, Optional, TypeVar, Union

from oarlock.agent.ingest import http_origin, object_origin, path_origin
from oarlock.agent.ingest.origin import BrokenError, FetchError, Origin
from oarlock.agent.ingest.part_file import PartFile
from oarlock.run.quick_dataclass import dataclass
from oarlock.system.atomic_file import sync_folder
from oarlock.system.backoff import Backoff
from oarlock.system.safe_names import stays_inside

__all__ = ["FetchError", "IngestSource", "StoppedError", "fetch"]

PATIENCE = 300.0  # seconds without a new byte
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_CHUNK = 1 << 20

T = TypeVar("T")
Progress = Callable[[int, Optional[int]], None]  # bytes so far, and in total if known
_Found = Union[Origin, dict[str, Origin]]


class StoppedError(FetchError):
    """The caller stopped the fetch; a later call resumes it."""


@dataclass(frozen=True)
class IngestSource:
    """`url`, a path or a URL, becomes `name` below the data folder. `sha256` is of a single file, in hex."""

    name: str
    url: str
    sha256: str | None = None

    def __post_init__(self) -> None:
        if not stays_inside(self.name):
            raise ValueError(f"{self.name!r} does not name something below the data folder")


def fetch(
    source: IngestSource,
    target: Path,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    patience: float = PATIENCE,
) -> None:
    """Fetch the source to `target`. Raises FetchError, whose message is for the user.

    A broken connection is retried until no byte has arrived for `patience` seconds. At most one call at a
    time may have the same target.
    """
    if _is_there(target, source.sha256):
        return
    call = _Call(progress, stop or threading.Event(), patience)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        found = call.retried(lambda: _find(source))
        if isinstance(found, dict):
            if source.sha256:
                raise FetchError(f"{source.url} is a folder, and a sha256 is of one file: remove it")
            _folder(found, target, call)
        else:
            call.total = found.size
            _file(found, target, source.url, source.sha256, call)
    except OSError as error:  # origins turn their own errors into FetchError
        raise FetchError(f"{target} cannot be written: {error.strerror or error}") from None


class _Call:
    """Progress, stop and patience of one call."""

    def __init__(self, progress: Progress | None, stop: threading.Event, patience: float) -> None:
        self.total: int | None = None
        self.before = 0  # bytes of a folder's finished files
        self._progress = progress
        self._stop = stop
        self._patience = patience
        self._backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        self._farthest = -1
        self._since = time.monotonic()

    def came_to(self, at: int, size: int | None) -> None:
        """Note that `at` bytes of a file are here. One that starts over counts once it gets farther."""
        if self._stop.is_set():
            raise StoppedError("the fetch was stopped")
        if self.before + at > self._farthest:
            self._farthest = self.before + at
            self._since = time.monotonic()
            self._backoff.succeeded()
        if self._progress is not None:
            self._progress(self.before + at, size if self.total is None else self.total)

    def retried(self, attempt: Callable[[], T]) -> T:
        """Return the attempt's result, once it does not break."""
        while True:
            try:
                return attempt()
            except BrokenError as broken:
                wait = max(self._backoff.failed(), broken.wait)
                tried = time.monotonic() - self._since
                if tried + wait > min(self._patience, broken.patience):
                    raise FetchError(f"{broken} (gave up after {tried:.0f} s)") from None
                if self._stop.wait(wait):
                    raise StoppedError("the fetch was stopped") from None


def _find(source: IngestSource) -> _Found:
    scheme, separator, _ = source.url.partition("://")
    if not separator:
        return path_origin.find(Path(source.url))  # type: ignore[return-value]
    if scheme.lower() in ("http", "https"):
        return http_origin.HttpOrigin(source.url, is_checked=source.sha256 is not None)
    if scheme.lower() in object_origin.SCHEMES:
        return object_origin.find(source.url)  # type: ignore[return-value]
    raise FetchError(f"{scheme}:// is not known here: use a path, https://, s3://, gs:// or az://")


def _folder(files: dict[str, Origin], target: Path, call: _Call) -> None:
    """Fetch all files into `<target>.part`, which gets its final name at the end."""
    draft = target.with_name(f"{target.name}.part")
    if draft.exists() and not draft.is_dir():
        draft.unlink()
    draft.mkdir(exist_ok=True)
    call.total = sum(origin.size or 0 for origin in files.values())
    for name, origin in files.items():
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _is_the_same(path, origin):
            _file(origin, path, origin.shown, None, call)
        call.before += origin.size or 0
        call.came_to(0, None)
    for top, _, names in os.walk(draft):  # files from an earlier attempt that the source no longer has
        for name in names:
            if (Path(top) / name).relative_to(draft).as_posix() not in files:
                (Path(top) / name).unlink()
        sync_folder(Path(top))
    draft.replace(target)
    sync_folder(target.parent)


def _file(origin: Origin, target: Path, key: str, sha256: str | None, call: _Call) -> None:
    with PartFile(target, key) as part:
        was_resumed = part.at > 0
        call.retried(lambda: _receive(origin, part, call))
        if sha256 and part.sha256 != sha256.lower() and was_resumed:  # perhaps a mix of two contents
            part.discard()
            call.retried(lambda: _receive(origin, part, call))
        if sha256 and part.sha256 != sha256.lower():
            found = part.sha256
            part.discard()
            raise FetchError(
                f"{origin.shown} has the sha256 {found}, not {sha256.lower()}: the file has changed, or the"
                " checksum is of another one"
            )
        part.complete(origin.modified_ns)


def _receive(origin: Origin, part: PartFile, call: _Call) -> None:
    """Make one attempt at the rest of a file."""
    call.came_to(part.at, part.size)
    if part.is_whole and _is_unchanged(origin, part):
        return
    opened = origin.open(0 if part.is_whole else part.at, part.tag)
    if opened.at and part.size is not None and opened.size != part.size:
        part.discard()
        raise BrokenError(f"{origin.shown} changes while it is fetched")
    part.begin(opened.at, opened.size, opened.tag)
    for chunk in opened.chunks:
        part.write(chunk)
        call.came_to(part.at, opened.size)
    if opened.size is not None and part.at < opened.size:
        raise BrokenError(f"{origin.shown} ended after {part.at} of {opened.size} bytes")
    if opened.size is not None and part.at > opened.size:
        part.discard()
        raise BrokenError(f"{origin.shown} changes while it is fetched")


def _is_unchanged(origin: Origin, part: PartFile) -> bool:
    """Whether the file still matches a part that an earlier call left whole: its last byte can be read."""
    opened = origin.open(max(part.at - 1, 0), part.tag)
    return (opened.at, opened.size) == (part.at - 1, part.size)


def _is_there(target: Path, sha256: str | None) -> bool:
    """Whether the target exists, which it does only when whole, and has the checksum if there is one."""
    if sha256 is None or not target.is_file():
        return target.exists()
    found = hashlib.sha256()
    with target.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest() == sha256.lower()


def _is_the_same(path: Path, origin: Origin) -> bool:
    """Whether an earlier attempt has fetched this file of a folder."""
    if not path.is_file():
        return False
    found = path.stat()
    return (found.st_size, found.st_mtime_ns) == (origin.size, origin.modified_ns)
