"""Copies versions of a model from a bucket to a local folder, in a separate process.

obstore has threads, and the supervisor has to fork, so only this child loads it. A version is copied once two
looks at the bucket found the same objects, or at once if a run uploaded it: its manifest comes last.
It appears in the folder whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oarlock.checkpoints import bucket, redact
from oarlock.checkpoints.manifest import FILE_NAME as SEAL
from oarlock.models import model_manifest
from oarlock.models.model_versions import SAVED_MODEL
from oarlock.serving.fleet.replica_process import ReplicaProcess
from oarlock.serving.settings import BEST, NEWEST, Settings
from oarlock.system import processes
from oarlock.system.safe_names import stays_inside

_REQUEST = 60.0  # seconds for one part
_OFTEN = 5.0  # minimum seconds between two looks: each is a request that costs money
_KEPT = 3  # versions that stay here, the newest ones
_MODELS = (model_manifest.FILE_NAME, SAVED_MODEL, "model.pt2", "model.onnx")

Listing = dict[str, tuple[Any, ...]]  # path below the version -> key, size, tag, time


class BucketMirror(ReplicaProcess):
    """The child. `failed` is the latest problem, None after a successful look; then it is `ready`."""

    def __init__(self, settings: Settings, file: Path | None, folder: Path) -> None:
        super().__init__(0, "mirror", (), -1)
        self._body = lambda line: _mirror(settings, file, folder, line)

    def begin(self) -> None:
        """Fork the child."""
        self.code = None
        self.start(self._body, lambda: None)


@contextlib.contextmanager
def mirrored(settings: Settings, beside: Path | None) -> Iterator[tuple[Path, BucketMirror | None]]:
    """The folder to serve from, and the process that fills it if the versions are in a bucket."""
    if not settings.is_in_bucket:
        yield Path(settings.source), None
        return
    near = beside.parent if beside is not None and os.access(beside.parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".models-", dir=near) as made:
        mirror = BucketMirror(settings, beside, Path(made))
        mirror.begin()
        try:
            yield Path(made), mirror
        finally:
            mirror.kill()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(mirror.pid, 0)
            mirror.close()


def _mirror(settings: Settings, file: Path | None, folder: Path, line: socket.socket) -> int:
    processes.die_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    if not bucket.is_here():
        _tell(line, {"failed": "a model in a bucket needs obstore: pip install 'oarlock[storage]'"})
        return 1
    pause, seen = threading.Event(), dict[str, Listing]()
    known: dict[str, Listing] = {}
    while True:
        settings = _as_now(settings, file)
        try:
            found = listed(bucket.opened(settings.source, _REQUEST), wanted=settings)
            is_settled = found == seen or all(SEAL in files for files in found.values())
            seen = found
            if is_settled:
                _bring(settings, folder, found, known)
                _tell(line, {"ready": [], "failed": None})
        except Exception as problem:
            _tell(line, {"failed": f"{settings.source}: {redact.reason(problem)}"})
        except BaseException as problem:  # Rust's panics are not Exceptions
            _tell(line, {"failed": f"{settings.source}: {type(problem).__name__}"})
        pause.wait(settings.every if not known else max(settings.every, _OFTEN))


def _as_now(settings: Settings, file: Path | None) -> Settings:
    """The settings with the versions that are wanted now."""
    try:
        new = settings if file is None else Settings.from_json(file.read_text())
    except (OSError, ValueError):
        return settings  # the supervisor says why
    return replace(settings, versions=new.versions, weights=new.weights)


def listed(store: Any, wanted: Settings) -> dict[str, Listing]:
    """The versions in a bucket that the settings ask for: number -> objects. A bare model is version 1."""
    found: dict[str, Listing] = {}
    bare: Listing = {}
    for page in store.list():
        for one in page:
            path = str(one["path"])
            about = (path, one["size"], one.get("e_tag"), str(one.get("last_modified")))
            number, _, rest = path.partition("/")
            if number.isdecimal() and rest:
                found.setdefault(number, {})[rest] = about
            bare[path] = about
    whole = {number: files for number, files in found.items() if _is_whole(files)}
    if not whole and any(name in bare for name in _MODELS):
        return {"1": bare}
    return _chosen(wanted, whole)


def _is_whole(files: Listing) -> bool:
    """Whether it is a complete model, not one that a run is still uploading: its manifest comes last."""
    if bucket.CLAIM in files and SEAL not in files:
        return False
    return any(name in files for name in _MODELS)


def _chosen(wanted: Settings, found: Mapping[str, Listing]) -> dict[str, Listing]:
    if wanted.weights:
        return {number: files for number, files in found.items() if int(number) in wanted.weights}
    if wanted.versions == BEST:
        return dict(found)
    newest = max(found, key=int, default="")
    number = newest if wanted.versions == NEWEST else wanted.versions
    return {number: found[number]} if number in found else {}


def _bring(settings: Settings, folder: Path, found: Mapping[str, Listing], known: dict[str, Listing]) -> None:
    for number, files in found.items():
        if known.get(number) != files:
            _download(settings.source, folder, number, files)
            known[number] = files
    old: Sequence[str] = sorted(known, key=int)[:-_KEPT]
    for number in old if settings.versions == NEWEST and not settings.weights else ():
        shutil.rmtree(folder / number, ignore_errors=True)
        known.pop(number)


def _download(source: str, folder: Path, number: str, files: Listing) -> None:
    store = bucket.opened(source, _REQUEST)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder))
    try:
        for name, (key, size, *_) in files.items():
            if not stays_inside(name):
                raise ValueError(f"it has an object with the name {name[:80]!a}")
            target = draft / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                for start in range(0, size, bucket.PART):
                    file.write(bytes(store.get_range(key, start=start, end=min(start + bucket.PART, size))))
        if (folder / number).exists():
            (folder / number).rename(draft.with_name(draft.name + "-old"))
        draft.rename(folder / number)
    finally:
        for left in (draft, draft.with_name(draft.name + "-old")):
            shutil.rmtree(left, ignore_errors=True)


def _tell(line: socket.socket, message: Mapping[str, Any]) -> None:
    try:
        line.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        os._exit(1)  # the supervisor is gone
