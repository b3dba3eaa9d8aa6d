"""Files that belong to a model besides what its framework writes: a vocabulary, weights, a predict.py."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Union

from oarlock.models import model_manifest
from oarlock.run.quick_dataclass import dataclass
from oarlock.training.exporting.written_model import ExportError

PREDICT = "predict.py"
_Place = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Bundled:
    """One file or folder: the program's name for it, its name in the version, and where it is now."""

    name: str
    target: str
    source: Path


def checked(files: Mapping[str, _Place] | Sequence[_Place], predict: _Place | None) -> list[Bundled]:
    """Return what to copy. Raises ExportError."""
    if isinstance(files, (str, os.PathLike)):
        raise ExportError(f"files={files!r}: give a list of paths, or a mapping of names to paths")
    pairs = files.items() if isinstance(files, Mapping) else [(Path(one).name, one) for one in files]
    found = [Bundled(str(name), Path(source).name, Path(source)) for name, source in pairs]
    if predict is not None:
        found.append(Bundled("predict", PREDICT, Path(predict)))
    for one in found:
        if not one.source.exists():
            raise ExportError(f"files: {one.source} does not exist")
        if one.target == model_manifest.FILE_NAME:
            raise ExportError(f"files: {one.source} has the name of the model's own manifest: rename it")
    return found


def copy(bundled: Sequence[Bundled], folder: Path) -> dict[str, str]:
    """Copy them into the version's folder and return their paths there, by name. Raises ExportError."""
    for one in bundled:
        target = folder / one.target
        if target.exists():
            raise ExportError(f"files: two files of the model are called {one.target}: rename {one.source}")
        if one.source.is_dir():
            shutil.copytree(one.source, target)
        else:
            shutil.copyfile(one.source, target)
    return {one.name: one.target for one in bundled}
