"""A SavedModel as a LiteRT file: on a CPU it answers a single example many times faster.

It is made when the model is exported and stored beside it; the server compares the answers of both before
using it. If a model cannot be converted, it has no LiteRT file: that is not an error.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from oarlock.models.model_manifest import Manifest

FILE_NAME = "model.tflite"
_LARGEST = 200 << 20  # bytes of weights: converting more takes longer than an export should


def add(folder: Path, manifest: Manifest) -> None:
    """Store the LiteRT form beside a SavedModel, if there is one."""
    with contextlib.suppress(CannotConvert):
        (folder / FILE_NAME).write_bytes(convert(folder, manifest))


class CannotConvert(Exception):
    """There is no LiteRT form of this model; says why."""


def convert(folder: Path, manifest: Manifest, largest: int = _LARGEST) -> bytes:
    """Return the LiteRT form of a SavedModel. Raises CannotConvert."""
    tensors = (*manifest.inputs, *manifest.outputs)
    if text := [one.name for one in tensors if one.dtype == "string"]:
        raise CannotConvert(f"{text[0]!r} is text")
    if odd := [one.name for one in manifest.inputs if None in one.shape[1:]]:
        raise CannotConvert(f"{odd[0]!r} has no fixed shape")
    if sum(path.stat().st_size for path in folder.glob("variables/*")) > largest:
        raise CannotConvert(f"its weights take more than {largest >> 20} MiB")
    import tensorflow as tf

    from oarlock.training.exporting import signatures

    try:
        with _quiet():
            name = signatures.read(folder).name
            converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=[name])
            return bytes(converter.convert())
    except Exception as problem:
        reason = str(problem).strip().splitlines() or [type(problem).__name__]
        raise CannotConvert(reason[0][:200]) from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The converter always writes pages to stderr, from C++."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as nowhere:
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
