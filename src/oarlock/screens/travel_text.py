"""What of the program's folder goes to a cluster, and what stays here, in a line or two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oarlock.screens.units import plural, size

_NAMED = 5


def lines(folder: Path, files: int, amount: int, withheld: Sequence[str]) -> list[str]:
    return [f"sends {plural(files, 'file')}, {size(amount)}, of {folder}", *left(withheld)]


def left(withheld: Sequence[str]) -> list[str]:
    """The credentials that stay, and how one of them is taken along."""
    if not withheld:
        return []
    names = withheld[:_NAMED]
    more = f" and {len(withheld) - _NAMED} more" if len(withheld) > _NAMED else ""
    return [
        f"leaves here what may hold credentials: {', '.join(names)}{more}; "
        f"the line !/{names[0]} in .oarlockignore takes that along"
    ]
