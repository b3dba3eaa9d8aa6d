"""Which files of the program's folder are sent to a cluster, in a line or two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oarlock.units import plural, size

_NAMED = 5


def lines(
    folder: Path, files: int, amount: int, withheld: Sequence[str], warnings: Sequence[str] = ()
) -> list[str]:
    """Return what is sent, what is not, and what the program will miss."""
    sent = f"sending {plural(files, 'file')}, {size(amount)}, of {folder}"
    return [sent, *left(withheld), *(f"warning: {warning}" for warning in warnings)]


def left(withheld: Sequence[str]) -> list[str]:
    """Return a line about files that are not sent because they may hold credentials, if there are any."""
    if not withheld:
        return []
    names = withheld[:_NAMED]
    more = f" and {len(withheld) - _NAMED} more" if len(withheld) > _NAMED else ""
    return [
        f"not sending files that may hold credentials: {', '.join(names)}{more}; "
        f"to send one, add the line !/{names[0]} to .oarlockignore"
    ]
