"""A program's own format: a predict.py and the files that it reads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from oarlock.models import predict_file
from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.models.predict_file import BadPredict
from oarlock.training.exporting import examples
from oarlock.training.exporting.bundled_files import PREDICT
from oarlock.training.exporting.written_model import ExportError, Written, first_line


class PythonProgram:
    """Copies predict.py. Given an example, tries it in the finished folder before the version exists."""

    is_collective = False

    def __init__(self, path: str | os.PathLike[str], example: Any) -> None:
        self._path, self._example = Path(path), example

    def write(self, folder: Path) -> Written:
        """See Writer."""
        try:
            predict_file.check(self._path)
        except BadPredict as problem:
            raise ExportError(str(problem)) from None
        shutil.copyfile(self._path, folder / PREDICT)
        return Written("python", (), (), entry=PREDICT)

    def finish(self, folder: Path, manifest: Manifest) -> Manifest:
        """See Writer."""
        if self._example is None:
            return manifest
        inputs, outputs = self._tried(folder)
        examples.store(folder, inputs)
        return replace(
            manifest,
            inputs=tuple(_described(name, [one.shape, one[:1].shape], one) for name, one in inputs.items()),
            outputs=tuple(_described(name, shapes, one) for name, (one, shapes) in outputs.items()),
        )

    def _tried(self, folder: Path) -> tuple[dict[str, Any], dict[str, tuple[Any, list[Any]]]]:
        """Call it with two examples and with one: a dimension that changes counts the examples."""
        import numpy as np

        if not isinstance(self._example, Mapping):
            raise ExportError("example: predict(inputs) takes arrays by name: pass a dict")
        given = {str(name): np.asarray(one) for name, one in self._example.items()}
        examples.check_rows(given)
        inputs = {name: np.resize(one, (2, *one.shape[1:])) for name, one in given.items()}
        inputs = {name: one.astype(object) if one.dtype.kind == "U" else one for name, one in inputs.items()}
        try:
            loaded = predict_file.load(folder / PREDICT, folder, instead_of=self._path.parent)
            both = loaded.predict(dict(inputs))
            single = loaded.predict({name: one[:1] for name, one in inputs.items()})
        except Exception as problem:
            said = f"{type(problem).__name__}: {first_line(problem)}"
            raise ExportError(f"{self._path} does not answer the example: {said}") from problem
        if not isinstance(both, Mapping):
            raise ExportError(f"{self._path}: predict() gives a {type(both).__name__}, not a dict of arrays")
        arrays = {str(name): np.asarray(one) for name, one in both.items()}
        return inputs, {
            name: (one, [one.shape, np.asarray(single[name]).shape]) for name, one in arrays.items()
        }


def _described(name: str, shapes: list[Any], array: Any) -> Tensor:
    return examples.described(name, "string" if array.dtype.kind in "OUS" else str(array.dtype), shapes)
