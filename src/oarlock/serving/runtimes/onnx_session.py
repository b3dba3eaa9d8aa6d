"""An ONNX model, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.models.model_manifest import DTYPES, Manifest, Tensor
from oarlock.models.model_versions import ONNX_FILE
from oarlock.serving.runtimes import descriptions, text_arrays
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.training.exporting.written_model import first_line

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

_TYPES = {"float": "float32", "double": "float64"}
_ERRORS_ONLY = 3


def load(folder: Path, manifest: Manifest, threads: int) -> OnnxSession:
    """Load the model in a folder. Raises ModelError."""
    import onnxruntime

    path = folder / ONNX_FILE
    if not path.exists():
        raise ModelError(f"{path} is missing")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # its classes come from C++
        raise ModelError(f"ONNX Runtime cannot load {path}: {first_line(problem)}") from None
    inputs, outputs = (
        tuple(map(_tensor, several)) for several in (session.get_inputs(), session.get_outputs())
    )
    return OnnxSession(
        descriptions.merged(manifest, replace(manifest, inputs=inputs, outputs=outputs)), session
    )


def _tensor(one: Any) -> Tensor:
    kind = one.type.removeprefix("tensor(").removesuffix(")")
    dtype = _TYPES.get(kind, kind)
    if dtype not in DTYPES:
        raise ModelError(f"{one.name!r} has the type {one.type}, which cannot be served")
    return Tensor(one.name, dtype, tuple(size if isinstance(size, int) else None for size in one.shape))


class OnnxSession:
    """Calls the session with arrays by name."""

    form = "ONNX Runtime"
    only_computes = True

    def __init__(self, manifest: Manifest, session: Any) -> None:
        self.manifest = manifest
        self._session: Any = session
        self._names = [one.name for one in manifest.outputs]
        self._text = {one.name for one in manifest.outputs if one.dtype == "string"}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See Runtime."""
        try:
            outputs = dict(zip(self._names, self._session.run(self._names, dict(inputs))))
        except Exception as problem:  # its classes come from C++
            raise ModelError(f"the model refuses these inputs: {first_line(problem)}") from None
        return {
            name: text_arrays.decoded(one) if name in self._text else one for name, one in outputs.items()
        }

    def close(self) -> None:
        """See Runtime."""
        self._session = None
