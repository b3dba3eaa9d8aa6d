"""A problem in words for the user, and equal problems of several tasks as one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

LONGEST = 200  # characters of a line


class Problem(NamedTuple):
    """What is wrong, and what to do about it."""

    what: str  # what is wrong, and where
    fix: str  # one thing to do
    who: str = ""  # the tasks it is about; empty: the run


class Weight(IntEnum):
    """The order of problems: first those that never resolve by themselves, and that cause others."""

    RUN = 0
    REFUSED = 1
    IMAGE = 2
    MEMORY = 3
    PLACE = 4
    CRASH = 5
    LOST = 6


class Finding(NamedTuple):
    """A problem of one task, before equal problems are merged."""

    weight: Weight
    who: str
    said: str
    fix: str


def fold(findings: Iterable[Finding]) -> list[Problem]:
    """Merge equal findings; the weightiest first, and equal weights in their order."""
    tasks: dict[tuple[Weight, str, str], list[str]] = {}
    for finding in findings:
        tasks.setdefault((finding.weight, finding.said, finding.fix), []).append(finding.who)
    return [
        problem(said, fix, named(who))
        for (_, said, fix), who in sorted(tasks.items(), key=lambda item: item[0][0])
    ]


def problem(said: str, fix: str, who: str = "") -> Problem:
    """Make a problem of short lines."""
    return Problem(cut(f"{who}: {said}" if who else said), cut(fix), who)


def named(tasks: Iterable[str]) -> str:
    """Two names, or one and how many more."""
    found = sorted({task for task in tasks if task}, key=_natural)
    if len(found) <= 2:
        return " and ".join(found)
    return f"{found[0]} and {len(found) - 1} more"


def cut(text: str, limit: int = LONGEST) -> str:
    """The text on one line of at most `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip(" ,:;") + "…"


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]
