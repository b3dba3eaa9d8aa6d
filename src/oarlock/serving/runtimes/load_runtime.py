"""Loads a version of a model: by its format, in its fastest form, with its predict.py around it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from oarlock.models.model_manifest import BadManifest, Manifest
from oarlock.models.model_versions import Version
from oarlock.serving.runtimes.runtime import ModelError, Runtime

_IMPORTS = {
    "saved_model": ("numpy", "tensorflow"),
    "torch_export": ("numpy", "torch"),
    "jax_export": ("numpy", "jax", "jax.export"),
    "onnx": ("numpy", "onnxruntime"),
}

LoadOfKind = Callable[[Path, Manifest, Path], Runtime]


def load(
    version: Version,
    predict: Path | None = None,
    *,
    threads: int = 0,
    note: Callable[[str], object] = lambda text: None,
    kinds: Mapping[str, LoadOfKind] = MappingProxyType({}),
) -> Runtime:
    """Load a version, in the process that will use it. Raises ModelError.

    predict: a predict.py that replaces the folder's own.
    threads: how many the model may use; 0: one for each core that this process may use.
    note: called with the reason if a faster form is not used.
    kinds: functions that load models of certain kinds from the folder, the manifest and predict.py.
    """
    try:
        manifest = version.manifest()
    except BadManifest as problem:
        raise ModelError(f"version {version.number}: {problem}") from None
    except OSError as problem:
        raise ModelError(f"version {version.number} cannot be read: {problem}") from None
    missing = [name for name in manifest.files.values() if not (version.path / name).exists()]
    if missing:
        raise ModelError(f"version {version.number}: {missing[0]} is missing from {version.path}")
    try:
        if manifest.kind in kinds:
            entry = predict or version.path / (manifest.entry or "predict.py")
            return kinds[manifest.kind](version.path, manifest, entry)
        return _load(version.path, manifest, predict, threads or len(os.sched_getaffinity(0)), note)
    except ModelError as problem:
        raise ModelError(f"version {version.number}: {problem}") from problem.__cause__
    except ImportError as problem:
        fix = f"install {problem.name}" if problem.name else "see what it needs"
        raise ModelError(f"version {version.number} needs a package: {problem}; {fix}") from None


def modules(manifest: Manifest) -> tuple[str, ...]:
    """Return the modules to import before the fork: a process that has loaded a model must not fork."""
    if manifest.format == "python":
        return tuple(manifest.frameworks)
    return _IMPORTS[manifest.format]


def _load(
    folder: Path, manifest: Manifest, predict: Path | None, threads: int, note: Callable[[str], object]
) -> Runtime:
    from oarlock.serving.runtimes import fastest_form, python_predict

    if manifest.format == "python":
        entry = predict or folder / (manifest.entry or "predict.py")
        return python_predict.load(folder, manifest, entry, None)
    plain, faster = _of_format(folder, manifest, threads)
    chosen = fastest_form.choose(folder, plain, faster, note)
    if predict is None and manifest.entry:
        predict = folder / manifest.entry
    return chosen if predict is None else python_predict.load(folder, chosen.manifest, predict, chosen)


def _of_format(
    folder: Path, manifest: Manifest, threads: int
) -> tuple[Runtime, Callable[[], Runtime] | None]:
    """The model as it was exported, and a function that makes its faster form."""
    if manifest.format == "saved_model":
        from oarlock.serving.runtimes import litert, saved_model

        plain = saved_model.load(folder, manifest, threads)
        return plain, lambda: litert.load(folder, plain.manifest, threads)
    if manifest.format == "torch_export":
        from oarlock.serving.runtimes import torch_export

        return torch_export.load(folder, manifest, threads), None
    if manifest.format == "jax_export":
        from oarlock.serving.runtimes import jax_export

        return jax_export.load(folder, manifest), None
    from oarlock.serving.runtimes import onnx_session

    return onnx_session.load(folder, manifest, threads), None
