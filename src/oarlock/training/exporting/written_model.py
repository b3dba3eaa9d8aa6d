"""The interface of a framework's exporter, and what it returns."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from oarlock.models.model_manifest import DTYPES, Manifest, Tensor
from oarlock.run.quick_dataclass import dataclass


class ExportError(ValueError):
    """The model cannot be exported as it was given; says why, and what to do."""


@dataclass(frozen=True)
class Written:
    """What is in the folder now."""

    format: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    entry: str = ""
    example: dict[str, Any] = field(default_factory=dict)  # arrays, by input


class Writer(Protocol):
    """Writes one model, in the format of its framework."""

    is_collective: bool  # whether all workers write together, each to its own folder

    def write(self, folder: Path) -> Written:
        """Write the model. Raises ExportError."""

    def finish(self, folder: Path, manifest: Manifest) -> Manifest:
        """Complete a version whose other files are in place, and return its manifest. Raises ExportError."""


def tensor(name: str, dtype: str, shape: tuple[int | None, ...]) -> Tensor:
    """Describe one input or output. Raises ExportError if no server could pass it on."""
    if dtype not in DTYPES:
        raise ExportError(f"{name!r} has the type {dtype}, which cannot be served: cast it to float32")
    return Tensor(name, dtype, shape)


def first_line(problem: BaseException) -> str:
    """The message of a framework's exception, on one line: some fill a screen."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    text = lines[0] if lines else type(problem).__name__
    return text if len(text) <= 300 else text[:297] + "..."
