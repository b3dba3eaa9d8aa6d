"""What one file elsewhere can do, whatever kind of place it is in, and how its failures are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from oarlock.run.quick_dataclass import dataclass


class FetchError(Exception):
    """A source cannot be fetched. The message names it, says why, and holds no credentials."""


class BrokenError(Exception):
    """Something that may work at the next attempt.

    `wait`: seconds that the server asks for. `patience`: the most seconds of trying that this is worth.
    """

    def __init__(self, message: str, wait: float = 0, patience: float = float("inf")) -> None:
        super().__init__(message)
        self.wait = wait
        self.patience = patience


@dataclass(frozen=True)
class Opened:
    """A file from byte `at` on: the byte that was asked for, or 0 if only a new start is right.

    `tag` identifies this content of the file; without one, a broken download starts over. `size` is that of
    the whole file.
    """

    at: int
    size: int | None
    tag: str | None
    chunks: Iterator[bytes]


class Origin(Protocol):
    """One file elsewhere."""

    @property
    def shown(self) -> str:
        """Its name for people, without credentials."""

    @property
    def size(self) -> int | None:
        """Bytes, where they are known before it is opened."""

    @property
    def modified_ns(self) -> int | None:
        """When it was changed last, where that is known before it is opened."""

    def open(self, at: int, tag: str | None) -> Opened:
        """Read from byte `at` if the file still has that tag, else from its start.

        Raises FetchError if it never will be there, BrokenError if another attempt may help; so may `chunks`.
        """
