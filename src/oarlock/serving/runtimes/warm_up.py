"""Inputs to try a model with before the first request: its own example if there is one, else made-up ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.models.model_versions import EXAMPLE

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

_ANY = 8  # the size of a dimension that can have any


def inputs(folder: Path, manifest: Manifest, rows: int) -> dict[str, Array]:
    """Return inputs with that many examples: the version's own, repeated, or random ones.

    Empty if the model accepts only one batch size and this is another.
    """
    if rows != 1 and not manifest.is_batched:
        return {}
    stored = _stored(folder, manifest)
    return {
        one.name: _repeated(stored[one.name], rows) if stored else _made_up(one, rows)
        for one in manifest.inputs
    }


def _stored(folder: Path, manifest: Manifest) -> dict[str, Array]:
    import numpy as np

    try:
        with np.load(folder / EXAMPLE, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError):
        return {}
    for one in manifest.inputs:
        array = found.get(one.name)
        if array is None or array.ndim != len(one.shape) or not len(array):
            return {}
        found[one.name] = array.astype(object if one.dtype == "string" else one.dtype)
    return found


def _repeated(array: Array, rows: int) -> Array:
    import numpy as np

    return np.resize(array, (rows, *array.shape[1:])) if rows != len(array) else array


def _made_up(one: Tensor, rows: int) -> Array:
    import numpy as np

    shape = [_ANY if size is None else size for size in one.shape]
    if one.is_batched:
        shape[0] = rows
    chance = np.random.default_rng(7)
    if one.dtype == "string":
        return np.full(shape, "some text", dtype=object)
    kind = np.dtype(one.dtype).kind
    if kind == "f":
        return np.asarray(chance.normal(size=shape)).astype(one.dtype)
    # Bytes are mostly pixels. Other integers may be word indices: 0 and 1 are in any vocabulary.
    return np.asarray(chance.integers(0, 256 if one.dtype == "uint8" else 2, shape)).astype(one.dtype)
