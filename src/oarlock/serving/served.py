"""What a replica serves, as those who answer requests see it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from oarlock.models.model_manifest import Manifest

if TYPE_CHECKING:
    from oarlock.serving.counters import Counters
    from oarlock.serving.runtimes.runtime import Array
    from oarlock.serving.settings import Settings


class Overloaded(Exception):
    """More work waits than the settings allow."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"too many requests wait; try again in {retry_after:.1f} s")
        self.retry_after = retry_after  # seconds


class Served(Protocol):
    """One loaded version of the model."""

    number: int
    manifest: Manifest  # with the inputs and outputs that the loaded model really has
    form: str  # what computes it: SavedModel, LiteRT, ...

    async def predict(self, inputs: Mapping[str, Array], deadline: float | None) -> dict[str, Array]:
        """Compute the outputs of inputs that fit the manifest. `deadline`: seconds from now; None: the usual.

        Raises Overloaded, ModelError if the model refuses these inputs, and TimeoutError. A caller that is
        cancelled has its rows dropped before they are computed.
        """


class Models(Protocol):
    """The versions that one replica has loaded."""

    name: str
    settings: Settings
    counters: Counters

    @property
    def is_ready(self) -> bool:
        """Whether it answers: loaded, warmed up and not about to stop."""

    def pick(self, number: int | None) -> Served:
        """Return that version; None: the usual one, in an A/B by its weight.

        Raises KeyError, whose text names the versions that are loaded.
        """

    def all(self) -> Sequence[Served]:
        """Return all of them, the usual one first."""
