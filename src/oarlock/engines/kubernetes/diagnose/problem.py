"""A problem in the user's words, and many equal ones as one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

LONGEST = 200  # characters of a line


class Problem(NamedTuple):
    what: str  # what is wrong, and where
    fix: str  # one thing to do
    who: str = ""  # the tasks it is about; empty: the run


class Weight(IntEnum):
    """What is told first: what never heals by itself, and what causes the others."""

    RUN = 0
    REFUSED = 1
    IMAGE = 2
    MEMORY = 3
    PLACE = 4
    CRASH = 5
    LOST = 6


class Finding(NamedTuple):
    """A problem of one task, before equal ones are folded."""

    weight: Weight
    who: str
    said: str
    fix: str


def fold(findings: Iterable[Finding]) -> list[Problem]:
    """The weightiest first; among equals the one that comes first."""
    tasks: dict[tuple[Weight, str, str], list[str]] = {}
    for finding in findings:
        tasks.setdefault((finding.weight, finding.said, finding.fix), []).append(finding.who)
    return [
        problem(said, fix, named(who))
        for (_, said, fix), who in sorted(tasks.items(), key=lambda item: item[0][0])
    ]


def problem(said: str, fix: str, who: str = "") -> Problem:
    return Problem(cut(f"{who}: {said}" if who else said), cut(fix), who)


def named(tasks: Iterable[str]) -> str:
    found = sorted({task for task in tasks if task}, key=_natural)
    if len(found) <= 2:
        return " and ".join(found)
    return f"{found[0]} and {len(found) - 1} more"


def cut(text: str, limit: int = LONGEST) -> str:
    """On one line, no longer than that."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip(" ,:;") + "…"


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]
