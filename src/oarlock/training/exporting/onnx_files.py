"""A model in ONNX: a file, or the object that the onnx package loads from one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.models.model_versions import ONNX_FILE
from oarlock.training.exporting.written_model import ExportError, Written, first_line, tensor


class OnnxFile:
    """Copies the file."""

    is_collective = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def write(self, folder: Path) -> Written:
        """See Writer."""
        try:
            shutil.copyfile(self._path, folder / ONNX_FILE)
        except OSError as problem:
            raise ExportError(f"{self._path} cannot be read: {problem.strerror}") from None
        return _written(folder / ONNX_FILE, str(self._path))

    def finish(self, folder: Path, manifest: Manifest) -> Manifest:
        """See Writer."""
        return manifest


class OnnxModel:
    """Stores the object."""

    is_collective = False

    def __init__(self, model: Any) -> None:
        self._model = model

    def write(self, folder: Path) -> Written:
        """See Writer."""
        try:
            (folder / ONNX_FILE).write_bytes(self._model.SerializeToString())
        except ValueError as problem:  # protobuf stores at most 2 GiB
            raise ExportError(f"the ONNX model cannot be stored: {first_line(problem)}") from problem
        return _written(folder / ONNX_FILE, "the ONNX model")

    def finish(self, folder: Path, manifest: Manifest) -> Manifest:
        """See Writer."""
        return manifest


def _written(path: Path, what: str) -> Written:
    """Without the onnx package the manifest lists no inputs and outputs: a server reads the file."""
    try:
        import onnx
    except ImportError:
        return Written("onnx", (), ())
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as problem:  # protobuf's own, whose class moves between versions
        raise ExportError(f"{what} is not an ONNX model: {first_line(problem)}") from None
    if not graph.output:
        raise ExportError(f"{what} is not an ONNX model: it has no outputs")
    weights = {one.name for one in graph.initializer}
    inputs = tuple(_tensor(one, onnx) for one in graph.input if one.name not in weights)
    return Written("onnx", inputs, tuple(_tensor(one, onnx) for one in graph.output))


def _tensor(value: Any, onnx: Any) -> Tensor:
    described = value.type.tensor_type
    kind = described.elem_type
    is_text = kind == onnx.TensorProto.STRING
    dtype = "string" if is_text else str(onnx.helper.tensor_dtype_to_np_dtype(kind))
    sizes = (one.dim_value if one.HasField("dim_value") else None for one in described.shape.dim)
    return tensor(value.name, dtype, tuple(sizes))
