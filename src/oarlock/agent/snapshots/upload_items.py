"""What a run has to upload: its checkpoints, the versions of its model, and a model without versions.

An exported version is complete as soon as it appears (`models/model_versions.py`), so it is uploaded while
training continues. Anything else in the model folder is complete only after the run has succeeded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from oarlock.checkpoints.bucket import CLAIM
from oarlock.checkpoints.manifest import FILE_NAME, FORMAT, FileEntry, sealed
from oarlock.checkpoints.store import Checkpoint, Store, checksum
from oarlock.models import model_manifest, model_versions
from oarlock.models.model_manifest import BadManifest
from oarlock.models.model_versions import Version
from oarlock.run.quick_dataclass import dataclass

MODEL = "model"


@dataclass(frozen=True)
class Item:
    """A complete folder to upload."""

    name: str
    folder: Path
    files: dict[str, FileEntry]
    manifest: bytes
    version: int | None = None  # the model's

    @property
    def key(self) -> tuple[str, int]:
        """Identifies the content: a later generation may save the same step again under the same name."""
        return self.name, zlib.crc32(self.manifest)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(entry["size"] for entry in self.files.values())

    def names(self, after: int) -> Iterator[str]:
        """The names it may get in the store, best first: another run may have taken some. A version keeps a
        number there too, above those up to `after`, which another machine uploaded: a machine that started
        without them counts from 1 again."""
        for number in count(1):
            if self.version is not None:
                yield f"{MODEL}/{after + self.version + number - 1}"
            else:
                yield self.name if number == 1 else f"{self.name}_{number}"

    def as_checkpoint(self) -> Checkpoint:
        """Convert it for `store.verify`."""
        return Checkpoint(self.folder, 0, 0, {"files": self.files})


class UploadItems:
    """Finds items in the run's folders. The files of a model are read once: they no longer change."""

    def __init__(self, run: str, checkpoints: str, model: str) -> None:
        self._run = run
        self._store = Store(checkpoints)
        self._model = None if "://" in model else Path(model)
        self._versions: dict[tuple[int, int, int], Item | str] = {}
        self._rest: Item | str | None = None
        self.refused: list[
            str
        ] = []  # reasons why something cannot be uploaded, one line each; the caller reports and removes them

    def checkpoints(self) -> list[Item]:
        """The checkpoints of this run, newest first."""
        own = [one for one in self._store.checkpoints() if one.manifest.get("run") == self._run]
        return [item for item in map(_of_checkpoint, reversed(own)) if item is not None]

    def versions(self, are_all_written: bool = False) -> list[Item]:
        """The versions of the model, newest first. Those from `oarlock.export` are complete from the start;
        others, which the program writes itself, only once `are_all_written`."""
        found = [
            self._of_version(one)
            for one in reversed(self._numbered())
            if are_all_written or (one.path / model_manifest.FILE_NAME).exists()
        ]
        return [item for item in found if isinstance(item, Item)]

    def rest_of_model(self) -> Item | None:
        """The part of the model folder that is in no version. Call this once nothing writes there."""
        if self._rest is None and self._model is not None:
            self._rest = self._of_rest(self._model)
        return self._rest if isinstance(self._rest, Item) else None

    def _numbered(self) -> list[Version]:
        found = [] if self._model is None else model_versions.versions(self._model)
        return [one for one in found if one.path != self._model]

    def _of_version(self, version: Version) -> Item | str | None:
        try:
            about = version.path.stat()
            key = (version.number, about.st_ino, about.st_mtime_ns)
            if key not in self._versions:
                self._versions[key] = self._new_version(version)
            return self._versions[key]
        except OSError:
            return None  # deleted in the meantime

    def _new_version(self, version: Version) -> Item | str:
        name, files = f"{MODEL}/{version.number}", _files_below(version.path)
        try:
            step = version.manifest().step
        except BadManifest:
            step = None
        if taken := {FILE_NAME, CLAIM} & files.keys():
            return self._refuse(name, min(taken))
        manifest = sealed({"format": FORMAT, "run": self._run, "step": step, "files": files})
        return Item(name, version.path, files, manifest, version.number)

    def _of_rest(self, folder: Path) -> Item | str:
        numbered = {str(one.number) for one in self._numbered()}
        files = {
            name: entry
            for name, entry in _files_below(folder).items()
            if name.partition("/")[0] not in numbered and not name.startswith(model_versions.DRAFTS)
        }
        if FILE_NAME in files:
            return self._refuse(MODEL, FILE_NAME)
        # Without a time, so that the same model is the same snapshot.
        manifest = sealed({"format": FORMAT, "run": self._run, "files": files})
        return Item(MODEL, folder, files, manifest) if files else "there is none"

    def _refuse(self, name: str, file: str) -> str:
        what = "the model" if name == MODEL else name
        self.refused.append(f"{what} is not uploaded: it has a {file} of its own")
        return self.refused[-1]


def _of_checkpoint(checkpoint: Checkpoint) -> Item | None:
    try:
        manifest = (checkpoint.path / FILE_NAME).read_bytes()
    except OSError:
        return None
    return Item(checkpoint.name, checkpoint.path, checkpoint.manifest["files"], manifest)


def _files_below(folder: Path) -> dict[str, FileEntry]:
    files: dict[str, FileEntry] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size, crc = checksum(path)
        files[path.relative_to(folder).as_posix()] = {"size": size, "crc32": crc}
    return files
