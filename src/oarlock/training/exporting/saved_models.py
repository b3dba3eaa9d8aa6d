"""TensorFlow SavedModels: from Keras 3, tf_keras, a Keras ExportArchive, a tf.Module or a tf.function."""

from __future__ import annotations

import contextlib
import inspect
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oarlock.models.model_manifest import Manifest
from oarlock.training.exporting import litert_conversion, signatures
from oarlock.training.exporting.written_model import ExportError, Written, first_line

FORMAT = "saved_model"
_SERVED = "serving_default"


class _SavedModel(ABC):
    is_collective = True

    def write(self, folder: Path) -> Written:
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # Keras prints a long description of the model
                self._save(folder)
        except ExportError:
            raise
        except Exception as problem:
            raise ExportError(f"TensorFlow cannot export this model: {first_line(problem)}") from problem
        found = signatures.read(folder)
        return Written(FORMAT, found.inputs, found.outputs)

    def finish(self, folder: Path, manifest: Manifest) -> Manifest:
        litert_conversion.add(folder, manifest)
        return manifest

    @abstractmethod
    def _save(self, folder: Path) -> None: ...


class KerasModel(_SavedModel):
    """A model of Keras 3 or tf_keras."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def _save(self, folder: Path) -> None:
        if not self._model.built:
            raise ExportError("the Keras model is not built: call it once, or give it an Input")
        can_be_quiet = "verbose" in inspect.signature(self._model.export).parameters
        self._model.export(str(folder), **({"verbose": False} if can_be_quiet else {}))


class Archive(_SavedModel):
    """An ExportArchive with the endpoints that the program added."""

    def __init__(self, archive: Any) -> None:
        self._archive = archive

    def _save(self, folder: Path) -> None:
        self._archive.write_out(str(folder))


class Module(_SavedModel):
    """A tf.Module, whose `serve` or `__call__` is served, or a tf.function."""

    def __init__(self, model: Any, example: Any) -> None:
        self._model, self._example = model, example
        self.others: Mapping[str, Any] = {}  # further functions, by name

    def _save(self, folder: Path) -> None:
        import tensorflow as tf

        is_module = isinstance(self._model, tf.Module)
        function = self._served() if is_module else self._model
        concrete = {_SERVED: function.get_concrete_function(*self._specs(function))}
        for name, one in self.others.items():
            concrete[name] = self._further(name, one)
        module = self._model
        if not is_module:
            module = tf.Module()
            module.serve = function
            module.held = [variable for one in concrete.values() for variable in one.variables]
        tf.saved_model.save(module, str(folder), signatures=concrete)

    def _further(self, name: str, function: Any) -> Any:
        if name == _SERVED or name.startswith("__"):
            raise ExportError(f"signatures: {name!r} is taken: give the function another name")
        if not hasattr(function, "get_concrete_function"):
            raise ExportError(f"signatures: {name!r} is a {type(function).__name__}: make it a tf.function")
        if getattr(function, "input_signature", None) is None:
            raise ExportError(f"signatures: the tf.function {name!r} has no input_signature: give it one")
        return function.get_concrete_function()

    def _served(self) -> Any:
        import tensorflow as tf

        for name in ("serve", "__call__"):
            function = getattr(self._model, name, None)
            if hasattr(function, "get_concrete_function"):
                return function
            if callable(function) and self._example is not None:
                return tf.function(function)
        raise ExportError("the tf.Module has no tf.function called serve or __call__: add one")

    def _specs(self, function: Any) -> list[Any]:
        """The specs to call it with; none if it has its own. The first dimension can have any size."""
        if getattr(function, "input_signature", None) is not None:
            return []
        if self._example is None:
            raise ExportError("the tf.function has no input_signature: give one, or pass example=")
        import tensorflow as tf

        given = self._example
        if isinstance(given, Mapping):
            names = [
                name for name in inspect.signature(function.python_function).parameters if name != "self"
            ]
            if unknown := [name for name in given if name not in names]:
                raise ExportError(f"example has {unknown[0]!r}, and the function takes {', '.join(names)}")
            given = [given[name] for name in names if name in given]
        tensors = map(tf.convert_to_tensor, given if isinstance(given, (list, tuple)) else [given])
        return [tf.TensorSpec([None, *one.shape[1:]], one.dtype) for one in tensors]
