"""`oarlock.export`: every worker of a program calls it once, after training.

The version appears whole or not at all, and only the leading task leaves one. If all workers must save
together (TensorFlow's MultiWorkerMirroredStrategy), the others write to a scratch folder.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oarlock.models import model_manifest, model_versions
from oarlock.models.model_manifest import KINDS, Manifest
from oarlock.training.exporting import bundled_files, examples, model_formats, provenance
from oarlock.training.exporting.written_model import ExportError
from oarlock.training.task.context import current


def export(
    model: Any,
    *,
    example: Any = None,
    kind: str = "tensor",
    labels: Iterable[str] = (),
    files: Mapping[str, str | os.PathLike[str]] | Sequence[str | os.PathLike[str]] = (),
    predict: str | os.PathLike[str] | None = None,
    signatures: Mapping[str, Any] | None = None,
    step: int | None = None,
    scores: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    keep: int | None = None,
) -> Path | None:
    """Write a model as the next version in MODEL_DIR and return the version's folder.

    Every worker calls it; all but the leading one get None and leave nothing. Raises ExportError.
    signatures: further functions of a SavedModel, by the names under which other programs find them.
    keep: afterwards delete all but the newest `keep` versions, for a program that exports repeatedly.
    """
    _check(kind, keep)
    task = current()
    write = model_formats.writer_of(model, example, signatures or {})
    if not task.is_chief:
        if write.is_collective:
            with tempfile.TemporaryDirectory(prefix="oarlock-export-") as scratch:
                write.write(Path(scratch) / "model")
        return None

    def fill(draft: Path) -> None:
        bundled = bundled_files.checked(files, predict)
        written = write.write(draft)
        stored = bundled_files.copy(bundled, draft)
        manifest = Manifest(
            format=written.format,
            inputs=written.inputs,
            outputs=written.outputs,
            kind=kind,
            entry=written.entry or (bundled_files.PREDICT if predict is not None else ""),
            labels=tuple(str(label) for label in labels),
            files=stored,
            frameworks=provenance.frameworks(written.format),
            run=task.run,
            step=provenance.step() if step is None else int(step),
            scores=provenance.scores() if scores is None else provenance.plain(scores),
        )
        examples.store(draft, written.example)
        (draft / model_manifest.FILE_NAME).write_bytes(write.finish(draft, manifest).to_json())

    return model_versions.write_version(_folder(folder, task.model), fill, keep).path


def _check(kind: str, keep: int | None) -> None:
    if kind not in KINDS:
        raise ExportError(f"kind={kind!r}: a model's kind is {', '.join(KINDS)}")
    if keep is not None and keep < 1:
        raise ExportError(f"keep={keep}: at least one version must be kept")


def _folder(given: str | os.PathLike[str] | None, usual: Path) -> Path:
    written = os.fspath(given) if given is not None else os.environ.get("MODEL_DIR", str(usual))
    if "://" in written:
        raise ExportError(
            f"the model folder is {written}, and a model is exported to a folder: pass folder=, "
            "and set storage.snapshots to have it copied to a bucket"
        )
    return Path(written)
