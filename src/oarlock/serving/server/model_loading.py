"""Loads a version of a model of any kind: one that computes arrays, or one that writes text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oarlock.models.model_versions import Version
from oarlock.serving.generation import loaded_generator
from oarlock.serving.runtimes import load_runtime
from oarlock.serving.runtimes.runtime import Runtime

_KINDS = {"completion": loaded_generator.load}


def load(
    version: Version,
    predict: Path | None = None,
    *,
    threads: int = 0,
    note: Callable[[str], object] = lambda text: None,
) -> Runtime:
    """See `load_runtime.load`. For the kind `completion` it returns a TextModel."""
    return load_runtime.load(version, predict, threads=threads, note=note, kinds=_KINDS)
