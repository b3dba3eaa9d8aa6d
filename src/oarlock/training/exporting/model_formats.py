"""Which exporter a model needs. If the program has not imported a framework, that one cannot have made it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from oarlock.training.exporting.written_model import ExportError, Writer


def writer_of(model: Any, example: Any, signatures: Mapping[str, Any]) -> Writer:
    """Return the writer for this model, with its further functions by name. Raises ExportError."""
    writer = _writer_of(model, example)
    if signatures:
        from oarlock.training.exporting.saved_models import Module

        if not isinstance(writer, Module):
            raise ExportError(
                "signatures= is for a tf.Module or a tf.function; of a Keras model, give an ExportArchive "
                "with an endpoint for each function"
            )
        writer.others = signatures
    return writer


def _writer_of(model: Any, example: Any) -> Writer:
    if isinstance(model, (str, os.PathLike)):
        return _of_file(model, example)
    if _is_a(model, "torch", "nn.Module"):  # includes Keras models with the torch backend
        from oarlock.training.exporting.torch_program import TorchProgram

        return TorchProgram(model, example)
    if _is_a(model, "keras", "Model") or _is_a(model, "tf_keras", "Model"):
        from oarlock.training.exporting.saved_models import KerasModel

        return KerasModel(model)
    if hasattr(model, "add_endpoint") and hasattr(model, "write_out"):  # its class depends on the backend
        from oarlock.training.exporting.saved_models import Archive

        return Archive(model)
    if _is_a(model, "tensorflow", "Module") or _is_function_of_tensorflow(model):
        from oarlock.training.exporting.saved_models import Module

        return Module(model, example)
    if hasattr(model, "SerializeToString") and hasattr(model, "graph"):
        from oarlock.training.exporting.onnx_files import OnnxModel

        return OnnxModel(model)
    if callable(model) and "jax" in sys.modules:
        from oarlock.training.exporting.jax_program import JaxProgram

        return JaxProgram(model, example)
    raise ExportError(
        f"a {type(model).__name__} cannot be exported: give a Keras model, a tf.Module, a torch.nn.Module, "
        "a function of JAX, the path of an .onnx file, or the path of a predict.py"
    )


def _of_file(path: str | os.PathLike[str], example: Any) -> Writer:
    name = os.fspath(path)
    if name.endswith(".onnx"):
        from oarlock.training.exporting.onnx_files import OnnxFile

        return OnnxFile(path)
    if name.endswith(".py"):
        from oarlock.training.exporting.python_program import PythonProgram

        return PythonProgram(path, example)
    raise ExportError(f"{name} cannot be exported: give the path of an .onnx file or of a predict.py")


def _is_a(model: Any, package: str, name: str) -> bool:
    kind: Any = sys.modules.get(package)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return isinstance(kind, type) and isinstance(model, kind)


def _is_function_of_tensorflow(model: Any) -> bool:
    return callable(model) and hasattr(model, "get_concrete_function") and "tensorflow" in sys.modules
