"""A program's own predict.py: as the model itself, or before and after a model of another format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.models import predict_file
from oarlock.models.model_manifest import DTYPES, Manifest, Tensor
from oarlock.models.predict_file import BadPredict
from oarlock.serving.runtimes.runtime import ModelError, Runtime

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array


def load(folder: Path, manifest: Manifest, entry: Path, inner: Runtime | None) -> Predict:
    """Load a predict.py, around a loaded model or as the model. Raises ModelError."""
    try:
        loaded = predict_file.load(entry, folder, None if inner is None else inner.run)
    except BadPredict as problem:
        raise ModelError(str(problem)) from None
    except Exception as problem:
        raise ModelError(f"{entry}: load() fails: {_said(problem)}") from problem
    if not callable(getattr(loaded, "predict", None)):
        raise ModelError(f"{entry}: load() gives a {type(loaded).__name__}, which has no predict(inputs)")
    manifest = replace(
        manifest,
        inputs=_declared(entry, "inputs", loaded) or manifest.inputs,
        outputs=_declared(entry, "outputs", loaded) or manifest.outputs,
    )
    return Predict(manifest, entry, loaded, inner)


class Predict:
    """Calls `predict` with arrays by name."""

    only_computes = False  # the user's own code

    def __init__(self, manifest: Manifest, entry: Path, loaded: Any, inner: Runtime | None) -> None:
        self.manifest = manifest
        self.form = entry.name if inner is None else f"{entry.name} around {inner.form}"
        self._loaded: Any = loaded
        self._inner = inner

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See Runtime."""
        import numpy as np

        try:
            outputs = self._loaded.predict(dict(inputs))
        except ModelError:
            raise
        except (ValueError, TypeError, KeyError, IndexError) as problem:
            raise ModelError(f"the model refuses these inputs: {_said(problem)}") from problem
        if not isinstance(outputs, Mapping):
            raise ModelError(f"predict() gives a {type(outputs).__name__}, not a dict of arrays by name")
        arrays = {str(name): np.asarray(one) for name, one in outputs.items()}
        return {name: one.astype(object) if one.dtype.kind in "US" else one for name, one in arrays.items()}

    def close(self) -> None:
        """See Runtime."""
        self._loaded = None
        if self._inner is not None:
            self._inner.close()


def _declared(entry: Path, which: str, loaded: Any) -> tuple[Tensor, ...]:
    """The inputs or outputs that the object declares: {"text": ("string", [None])}. Empty if none."""
    given = getattr(loaded, which, None)
    if given is None:
        return ()
    try:
        found = tuple(Tensor(str(name), str(dtype), tuple(shape)) for name, (dtype, shape) in given.items())
    except (AttributeError, TypeError, ValueError):
        found = ()
    wrong = [one for one in found if one.dtype not in DTYPES or not all(_is_size(size) for size in one.shape)]
    if wrong or not found:
        raise ModelError(
            f'{entry}: {which} has to be like {{"text": ("string", [None])}}, names with types and shapes'
        )
    return found


def _is_size(size: Any) -> bool:
    return size is None or (type(size) is int and size >= 0)


def _said(problem: BaseException) -> str:
    text = " ".join(str(problem).split())[:300]
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
