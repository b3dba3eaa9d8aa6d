"""What every kind of origin of a file can do, and how its failures are distinguished."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from oarlock.run.quick_dataclass import dataclass


class FetchError(Exception):
    """A source cannot be fetched. The message names it, says why, and contains no credentials."""


class BrokenError(Exception):
    """A failure that another attempt may fix.

    `wait`: seconds that the server asks for. `patience`: the most seconds of retries that this is worth.
    """

    def __init__(self, message: str, wait: float = 0, patience: float = float("inf")) -> None:
        super().__init__(message)
        self.wait = wait
        self.patience = patience


@dataclass(frozen=True)
class Opened:
    """A file from byte `at` on: the requested byte, or 0 if it has to start over.

    `tag` identifies this content of the file. Without one, a broken download starts over. `size` is that of
    the whole file.
    """

    at: int
    size: int | None
    tag: str | None
    chunks: Iterator[bytes]


class Origin(Protocol):
    """One file in another place."""

    @property
    def shown(self) -> str:
        """Its name for users, without credentials."""

    @property
    def size(self) -> int | None:
        """Its bytes, if known before it is opened."""

    @property
    def modified_ns(self) -> int | None:
        """When it was last changed, if known before it is opened."""

    def open(self, at: int, tag: str | None) -> Opened:
        """Read from byte `at` if the file still has that tag, otherwise from its start.

        Raises FetchError if it will never be there, BrokenError if another attempt may help. So may `chunks`.
        """
