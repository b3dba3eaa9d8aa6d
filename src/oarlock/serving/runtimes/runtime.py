"""The interface of a loaded model. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from oarlock.models.model_manifest import Manifest

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class ModelError(Exception):
    """The model cannot be loaded, or refuses an input; the text is for the client."""


class Overloaded(Exception):
    """More work waits than the settings allow."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"too many requests wait; try again in {retry_after:.1f} s")
        self.retry_after = retry_after  # seconds


class Runtime(Protocol):
    """A model in memory. One thread at a time calls it."""

    manifest: Manifest  # with the inputs and outputs that the loaded model really has
    form: str  # what runs, for `status`: SavedModel, LiteRT, torch.export, ...
    only_computes: bool  # neither reads nor waits: the last calls predict how long the next one takes

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the outputs of checked inputs: types and shapes are the manifest's, text is str objects.

        Raises ModelError if the model refuses these inputs.
        """

    def close(self) -> None:
        """Release its resources."""
