"""A folder of a model's versions: `1/`, `2/`, ..., the layout that TensorFlow Serving and KServe document.

A version appears whole or not at all: it is written under another name and renamed. A folder that holds a
model directly, as Keras's `model.export(MODEL_DIR)` writes it, counts as version 1.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from oarlock.models import model_manifest
from oarlock.models.model_manifest import BadManifest, Manifest
from oarlock.system.atomic_file import sync_folder

SAVED_MODEL = "saved_model.pb"
TORCH_PROGRAM, JAX_PROGRAM, ONNX_FILE = "model.pt2", "model.jax", "model.onnx"
EXAMPLE = "example.npz"  # a few inputs, to try the model with
# How to recognize a folder without a manifest: the first of these files that exists.
_KNOWN = {
    SAVED_MODEL: "saved_model",
    TORCH_PROGRAM: "torch_export",
    JAX_PROGRAM: "jax_export",
    ONNX_FILE: "onnx",
}
_NUMBER = re.compile("[1-9][0-9]{0,17}")
_NEW, _DRAFT = ".new-", ".draft-"
DRAFTS = (_NEW, _DRAFT)  # prefixes of folders that are not versions yet


@dataclass(frozen=True)
class Version:
    """One version of a model."""

    number: int
    path: Path

    def manifest(self) -> Manifest:
        """Return its manifest, or what is known without one: the format alone, no inputs or outputs.

        Raises BadManifest if the folder holds no model.
        """
        try:
            return model_manifest.read((self.path / model_manifest.FILE_NAME).read_bytes())
        except FileNotFoundError:
            pass
        for name, kind in _KNOWN.items():
            if (self.path / name).exists():
                return Manifest(format=kind, inputs=(), outputs=())
        raise BadManifest(f"{self.path} holds no model: neither {model_manifest.FILE_NAME} nor {SAVED_MODEL}")


def versions(folder: Path) -> list[Version]:
    """Return the versions in a folder, oldest first; none if it is missing or has none."""
    try:
        names = sorted((one.name for one in folder.iterdir() if _NUMBER.fullmatch(one.name)), key=int)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [Version(int(name), folder / name) for name in names if (folder / name).is_dir()]
    if found:
        return found
    is_model = any((folder / name).exists() for name in (model_manifest.FILE_NAME, *_KNOWN))
    return [Version(1, folder)] if is_model else []


@contextmanager
def new_version(folder: Path) -> Iterator[Path]:
    """Write the next version inside a `with` block; the value is the folder to write to.

    Nothing is left if the block raises. If two processes publish at the same time, both versions exist.
    """
    with _draft(folder) as draft:
        yield draft
        _publish(draft, folder)


def write_version(folder: Path, write: Callable[[Path], object], keep: int | None = None) -> Version:
    """Let `write` fill the folder of the next version, and return that version. Otherwise as above.

    keep: afterwards delete all but the newest `keep` versions.
    """
    with _draft(folder) as draft:
        write(draft)
        published = _publish(draft, folder)
    if keep is not None:
        _expire(folder, keep)
    return published


def _expire(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` versions. No reader sees half of one."""
    for old in [one for one in versions(folder) if one.path != folder][:-keep]:
        with suppress(OSError):  # another process was faster
            shutil.rmtree(old.path.rename(folder / f"{_DRAFT}expired-{old.number}"), ignore_errors=True)


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    made = Path(tempfile.mkdtemp(prefix=_NEW, dir=folder))
    fd = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks: then no draft counts as abandoned either
            fcntl.flock(fd, fcntl.LOCK_EX)
        # Locked before it gets this name: no process sees an unlocked draft.
        draft = made.rename(folder / made.name.replace(_NEW, _DRAFT))
        try:
            yield draft
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    finally:
        os.close(fd)


def _remove_abandoned(folder: Path) -> None:
    """Remove the drafts of killed processes: a live process holds the lock on its own."""
    for draft in folder.glob(f"{_DRAFT}*"):
        with suppress(OSError):
            fd = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(draft, ignore_errors=True)
            finally:
                os.close(fd)


def _publish(draft: Path, folder: Path) -> Version:
    draft.chmod(0o755)
    _flush(draft)
    number = max((one.number for one in versions(folder) if one.path != folder), default=0) + 1
    while True:
        try:
            draft.rename(folder / str(number))
        except OSError:
            if not (folder / str(number)).exists():
                raise
            number += 1  # another process was faster
        else:
            sync_folder(folder)
            return Version(number, folder / str(number))


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
