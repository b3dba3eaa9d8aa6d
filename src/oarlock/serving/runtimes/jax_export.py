"""A jax.export program. XLA compiles it for each number of rows, so only a few numbers are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.models.model_manifest import Manifest
from oarlock.models.model_versions import JAX_PROGRAM
from oarlock.serving.runtimes import descriptions, warm_up
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.training.exporting import examples, jax_program
from oarlock.training.exporting.written_model import ExportError, first_line

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

_SIZES = (1, 8, 64)  # compiled at load time; a batch is padded to the next one


def load(folder: Path, manifest: Manifest) -> JaxExport:
    """Load the program in a folder and compile it. Raises ModelError."""
    from jax import export as jax_export

    path = folder / JAX_PROGRAM
    try:
        exported = jax_export.deserialize(bytearray(path.read_bytes()))
        inputs, outputs = jax_program.described(exported)
    except OSError as problem:
        raise ModelError(f"{path} cannot be read: {problem.strerror}") from None
    except ExportError as problem:
        raise ModelError(str(problem)) from None
    except Exception as problem:
        raise ModelError(f"jax cannot load {path}: {first_line(problem)}") from problem
    found = descriptions.merged(manifest, replace(manifest, inputs=inputs, outputs=outputs))
    runtime = JaxExport(found, exported)
    for size in _SIZES:
        if batch := warm_up.inputs(folder, found, size):
            runtime.run(batch)
    return runtime


class JaxExport:
    """Calls the program; removes the rows that only pad a batch."""

    form = "jax.export"
    only_computes = False  # it may call back into Python

    def __init__(self, manifest: Manifest, exported: Any) -> None:
        import jax

        self.manifest = manifest
        self._call: Any = jax.jit(exported.call)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See Runtime."""
        import numpy as np

        rows = len(next(iter(inputs.values()))) if self.manifest.is_batched else 0
        try:
            filled = (
                {name: _filled(one, _size(rows)) for name, one in inputs.items()} if rows else dict(inputs)
            )
            outputs = {name: np.asarray(one) for name, one in examples.by_name(self._called(filled)).items()}
        except Exception as problem:
            raise ModelError(f"the model refuses these inputs: {first_line(problem)}") from None
        return {name: one[:rows] for name, one in outputs.items()} if rows else outputs

    def _called(self, inputs: Mapping[str, Array]) -> Any:
        positional = [name for name in inputs if name.startswith("input_") and name[6:].isdecimal()]
        if len(positional) == len(inputs):
            try:
                return self._call(
                    *(inputs[name] for name in sorted(positional, key=lambda one: int(one[6:])))
                )
            except TypeError:
                pass  # its arguments really have these names
        return self._call(**inputs)

    def close(self) -> None:
        """See Runtime."""
        self._call = None


def _size(rows: int) -> int:
    for size in _SIZES:
        if rows <= size:
            return size
    return 1 << (rows - 1).bit_length()


def _filled(array: Array, rows: int) -> Array:
    import numpy as np

    if len(array) == rows:
        return array
    more = np.zeros((rows - len(array), *array.shape[1:]), array.dtype)
    return np.concatenate([array, more])
