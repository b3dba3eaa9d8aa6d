"""Loads a text model: the Generator that its predict.py returns."""

from __future__ import annotations

from pathlib import Path

from oarlock.models import predict_file
from oarlock.models.model_manifest import Manifest
from oarlock.models.predict_file import BadPredict
from oarlock.serving.generation.generator import Generator
from oarlock.serving.generation.text_model import TextModel
from oarlock.serving.runtimes.runtime import ModelError

_CALLS = ("encode", "decode", "start", "step")
_SIZES = ("slots", "vocabulary", "context")


def load(folder: Path, manifest: Manifest, entry: Path) -> TextModel:
    """Load the model in a folder with a predict.py, in the process that will use it. Raises ModelError."""
    try:
        generator = predict_file.load(entry, folder)
    except BadPredict as problem:
        raise ModelError(str(problem)) from None
    except ImportError:
        raise
    except Exception as problem:
        raise ModelError(f"{entry}: load() fails: {type(problem).__name__}: {problem}") from problem
    return TextModel(manifest, checked(entry, generator))


def checked(entry: Path, generator: object) -> Generator:
    """Return what `load` returned, if it is a Generator. Raises ModelError."""
    missing = [f"{name}()" for name in _CALLS if not callable(getattr(generator, name, None))]
    missing += [name for name in _SIZES if type(getattr(generator, name, None)) is not int]
    if missing:
        kind = type(generator).__name__
        raise ModelError(
            f"{entry}: load() gives a {kind} without {', '.join(missing)}: a text model needs it"
        )
    small = [name for name in _SIZES if getattr(generator, name) < 1]
    if small:
        raise ModelError(f"{entry}: {small[0]} is {getattr(generator, small[0])}; it has to be 1 or more")
    return generator  # type: ignore[return-value]
