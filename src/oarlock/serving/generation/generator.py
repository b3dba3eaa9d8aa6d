"""The interface of a text model's `predict.py`: `load(folder)` returns a Generator. Pure.

It scores tokens and remembers what it has read, in a key-value cache for each slot. It draws no tokens and
knows nothing about requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array


class Generator(Protocol):
    """A text model with room for `slots` texts. Only one thread at a time calls it."""

    slots: int
    vocabulary: int  # tokens are 0 to vocabulary - 1
    context: int  # tokens that one slot holds: how far the model looks back

    def encode(self, text: str) -> Sequence[int]:
        """Return the tokens of a text, at least one: for an empty text, the token that texts start with."""

    def decode(self, token: int) -> bytes:
        """Return what a token stands for, in UTF-8; may be part of a character. b"" ends a text."""

    def start(self, slot: int, tokens: Sequence[int]) -> Array:
        """Clear the slot and read 1 to `context` tokens; return the scores of the next one."""

    def step(self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> Array:
        """Read one more token in each of these slots; return the scores of the next tokens, one row each.

        A position is the number of tokens that its slot has read before. Repeating a step changes nothing.
        """
