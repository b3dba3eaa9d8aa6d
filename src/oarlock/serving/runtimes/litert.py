"""A SavedModel in its LiteRT form, with XNNPACK: on a CPU a single example takes a fraction of the time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.models.model_manifest import Manifest
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.training.exporting import litert_conversion

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

_LARGEST = 50 << 20  # bytes of weights up to which a model is converted at load time


def load(folder: Path, manifest: Manifest, threads: int) -> LiteRT:
    """Return the LiteRT form of a SavedModel: the file beside it, or converted now. Raises ModelError."""
    path = folder / litert_conversion.FILE_NAME
    if any(one.dtype == "string" for one in (*manifest.inputs, *manifest.outputs)):
        raise ModelError("LiteRT takes no text")
    try:
        content = (
            path.read_bytes() if path.exists() else litert_conversion.convert(folder, manifest, _LARGEST)
        )
    except litert_conversion.CannotConvert as problem:
        raise ModelError(f"it has no LiteRT form: {problem}") from None
    except OSError as problem:
        raise ModelError(f"{path} cannot be read: {problem.strerror}") from None
    try:
        interpreter = _interpreter()(model_content=content, num_threads=threads)
        return LiteRT(manifest, interpreter)
    except (RuntimeError, ValueError, KeyError) as problem:
        raise ModelError(f"LiteRT cannot load it: {str(problem).splitlines()[0][:200]}") from None


def _interpreter() -> Any:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise ModelError("LiteRT is not installed: pip install ai-edge-litert") from None
    return Interpreter


class LiteRT:
    """One interpreter. It holds the inputs and outputs of one call, so two threads must not share it."""

    form = "LiteRT"
    only_computes = True

    def __init__(self, manifest: Manifest, interpreter: Any) -> None:
        import numpy as np

        self.manifest = manifest
        self._interpreter: Any = interpreter
        [signature] = interpreter.get_signature_list()
        runner = interpreter.get_signature_runner(signature)
        self._inputs = {name: one["index"] for name, one in runner.get_input_details().items()}
        self._outputs = {name: one["index"] for name, one in runner.get_output_details().items()}
        if self._inputs.keys() != {one.name for one in manifest.inputs}:
            raise ModelError(f"the LiteRT form takes {', '.join(self._inputs)}: export the model again")
        self._types = {one.name: np.dtype(one.dtype) for one in manifest.inputs}
        self._shapes: dict[str, tuple[int, ...]] = {}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See Runtime."""
        try:
            self._resize({name: array.shape for name, array in inputs.items()})
            for name, array in inputs.items():
                self._interpreter.set_tensor(self._inputs[name], array.astype(self._types[name], copy=False))
            self._interpreter.invoke()
        except (RuntimeError, ValueError) as problem:
            self._shapes = {}
            raise ModelError(
                f"the model refuses these inputs: {str(problem).splitlines()[0][:200]}"
            ) from None
        return {name: self._interpreter.get_tensor(index) for name, index in self._outputs.items()}

    def _resize(self, shapes: dict[str, tuple[int, ...]]) -> None:
        if shapes == self._shapes:
            return
        for name, shape in shapes.items():
            self._interpreter.resize_tensor_input(self._inputs[name], shape, strict=True)
        self._interpreter.allocate_tensors()
        self._shapes = shapes

    def close(self) -> None:
        """See Runtime."""
        self._interpreter = None
