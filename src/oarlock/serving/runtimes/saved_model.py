"""A SavedModel, called by one of its signatures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.models.model_manifest import Manifest
from oarlock.serving.runtimes import descriptions, text_arrays, warm_up
from oarlock.serving.runtimes.fastest_form import differing
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.training.exporting import signatures
from oarlock.training.exporting.written_model import ExportError, first_line

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array


def load(folder: Path, manifest: Manifest, threads: int) -> SavedModel:
    """Load the model in a folder. Raises ModelError."""
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError:
        pass  # TensorFlow is already running: another version in this process
    try:
        signature = signatures.read(folder)
    except ExportError as problem:
        raise ModelError(f"{problem} ({folder})") from None
    described = descriptions.merged(
        manifest, replace(manifest, inputs=signature.inputs, outputs=signature.outputs)
    )
    try:
        loaded = tf.saved_model.load(str(folder))
        function = loaded.signatures[signature.name]
    except Exception as problem:
        raise ModelError(f"TensorFlow cannot load {folder}: {first_line(problem)}") from problem
    runtime = SavedModel(described, loaded, function)
    if batch := warm_up.inputs(folder, described, 1):
        runtime.call_directly(batch)
    return runtime


class SavedModel:
    """Calls the function behind the signature with tensors in its own order."""

    form = "SavedModel"
    only_computes = False  # it may call back into Python

    def __init__(self, manifest: Manifest, loaded: Any, function: Any) -> None:
        import tensorflow as tf

        self.manifest = manifest
        self._kept: Any = loaded  # its variables live as long as it does
        self._function = function
        self._call: Callable[[dict[str, Any]], dict[str, Any]] = lambda tensors: function(**tensors)
        self._types = {one.name: tf.as_dtype(one.dtype) for one in manifest.inputs}
        self._text = {one.name for one in (*manifest.inputs, *manifest.outputs) if one.dtype == "string"}
        self._constant, self._error = tf.constant, (tf.errors.OpError, ValueError, TypeError)

    def call_directly(self, batch: Mapping[str, Array]) -> None:
        """From now on skip what TensorFlow does around a call, a third of the time that one row takes.

        This is not a documented interface: if it fails, or the answers differ, calls stay as they are.
        """
        function, called = self._function, self._call
        order, captured = getattr(function, "_arg_keywords", ()), list(function.captured_inputs)
        try:
            expected = self.run(batch)
            self._call = lambda tensors: function._call_flat([tensors[name] for name in order], captured)
            if differing(expected, self.run(batch)):
                self._call = called
        except Exception:
            self._call = called

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See Runtime."""
        try:
            tensors = {
                name: self._constant(
                    text_arrays.encoded(one) if name in self._text else one, self._types[name]
                )
                for name, one in inputs.items()
            }
            outputs = {name: one.numpy() for name, one in self._call(tensors).items()}
        except self._error as problem:
            raise ModelError(f"the model refuses these inputs: {first_line(problem)}") from None
        named = {one.name: outputs[one.name] for one in self.manifest.outputs}  # TensorFlow's order varies
        return {name: text_arrays.decoded(one) if name in self._text else one for name, one in named.items()}

    def close(self) -> None:
        """See Runtime."""
        self._function = self._kept = None
        self._call = dict  # releases the function
