"""Run a model before the first request: the first call of each batch size is slow."""

from __future__ import annotations

import time
from pathlib import Path

from oarlock.models.model_manifest import Manifest
from oarlock.serving.runtimes import warm_up
from oarlock.serving.runtimes.runtime import ModelError, Runtime

_LONGEST = 2.0  # seconds: batches larger than one that takes this long warm up when they arrive


def run(folder: Path, runtime: Runtime, max_rows: int, *, is_choosy: bool = False) -> None:
    """Run batches of 1, 2, 4, ... rows. Raises ModelError if the model refuses inputs that fit its manifest.

    `is_choosy`: code around the model may refuse inputs of the right types and shapes.
    """
    rows = 1
    while rows <= max_rows:
        began = time.monotonic()
        inputs = warm_up.inputs(folder, runtime.manifest, rows)
        if not inputs:
            return
        try:
            runtime.run(inputs)
        except ModelError:
            if not is_choosy and _is_described(runtime.manifest):
                raise
            return  # inputs may need a certain size, or text of a certain form
        if time.monotonic() - began > _LONGEST:
            return
        rows *= 2


def _is_described(manifest: Manifest) -> bool:
    """Whether any input of the stated types and shapes is valid. A program's own code may refuse some."""
    is_graph = manifest.format != "python" and not manifest.entry and manifest.kind in ("tensor", "image")
    return is_graph and all(
        one.dtype.startswith("float") and None not in one.shape[1:] for one in manifest.inputs
    )
