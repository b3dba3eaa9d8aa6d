"""What a replica serves, as its request handlers see it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from oarlock.models.model_manifest import Manifest
from oarlock.serving.runtimes.runtime import Overloaded

if TYPE_CHECKING:
    from oarlock.serving.counters import Counters
    from oarlock.serving.generation.text_model import TextModel
    from oarlock.serving.runtimes.runtime import Array
    from oarlock.serving.settings import Settings


__all__ = ["Models", "Overloaded", "Served"]


class Served(Protocol):
    """One loaded version of the model."""

    number: int
    manifest: Manifest  # with the inputs and outputs that the loaded model really has
    form: str  # what computes it: SavedModel, LiteRT, ...

    async def predict(self, inputs: Mapping[str, Array], deadline: float | None) -> dict[str, Array]:
        """Compute the outputs of inputs that fit the manifest. `deadline`: seconds from now; None: default.

        Raises Overloaded, ModelError if the model refuses these inputs, and TimeoutError. If the caller is
        cancelled, its rows are dropped before they are computed.
        """

    @property
    def text(self) -> TextModel | None:
        """The model that writes text, a token at a time; None if its kind is not `completion`."""


class Models(Protocol):
    """The versions that one replica has loaded."""

    name: str
    settings: Settings
    counters: Counters

    @property
    def is_ready(self) -> bool:
        """Whether it answers: loaded, warmed up and not about to stop."""

    def pick(self, number: int | None) -> Served:
        """Return that version; None: the default one, in an A/B test by weight.

        Raises KeyError, whose text names the loaded versions.
        """

    def all(self) -> Sequence[Served]:
        """Return all of them, the default one first."""
