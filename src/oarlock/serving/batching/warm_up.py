"""Run a model before it is asked: the first call of each batch size is the slow one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.runtimes.runtime import ModelError, Runtime

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

_LONGEST = 2.0  # seconds: larger batches than one that takes this long warm up when they come
_TEXT = "a"


def run(runtime: Runtime, max_rows: int) -> None:
    """Run batches of 1, 2, 4, ... rows. Raises ModelError if it refuses what it says it takes."""
    manifest = runtime.manifest
    rows = 1
    while rows <= max_rows:
        began = time.monotonic()
        try:
            runtime.run(inputs_for(manifest, rows))
        except ModelError:
            if _is_described(manifest):
                raise
            return  # its own inputs may have to be of a certain size, or text of a certain form
        if not manifest.is_batched or time.monotonic() - began > _LONGEST:
            return
        rows *= 2


def inputs_for(manifest: Manifest, rows: int) -> dict[str, Array]:
    """Inputs of the right names, types and shapes; a dimension of any size has one element."""
    return {one.name: _array(one, rows) for one in manifest.inputs}


def _array(tensor: Tensor, rows: int) -> Array:
    import numpy as np

    first = [rows if tensor.shape[0] is None else tensor.shape[0]] if tensor.shape else []
    shape = [*first, *(1 if size is None else size for size in tensor.shape[1:])]
    if tensor.dtype == "string":
        return np.full(shape, _TEXT, dtype=object)
    return np.zeros(shape, dtype=tensor.dtype)


def _is_described(manifest: Manifest) -> bool:
    """Whether any input of the stated shapes is a valid one."""
    return manifest.kind in ("tensor", "image") and all(
        one.dtype != "string" and None not in one.shape[1:] for one in manifest.inputs
    )
