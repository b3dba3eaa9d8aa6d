"""`{rank}`, `{world}` and `{coordinator}` in a program's arguments, for programs that want them there.

Pure; travels into pods. Only these exact names count: arguments are often JSON, whose braces must survive.
`{{rank}}` is the text `{rank}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oarlock.run.cluster import Task, leader, world
from oarlock.run.contract import Gang

# The variable with the same value; only tasks with a rank have the first two.
VARIABLES = {"rank": "RANK", "coordinator": "MASTER_ADDR and MASTER_PORT", "world": "OARLOCK_WORLD"}
RANKED = ("rank", "coordinator")
_NAMES = "|".join(VARIABLES)
_PATTERN = re.compile(rf"\{{\{{({_NAMES})\}}\}}|\{{({_NAMES})\}}")


def used(args: Iterable[str]) -> set[str]:
    """The names that the arguments use."""
    return {found[2] for word in args for found in _PATTERN.finditer(word) if found[2]}


def fill(args: Iterable[str], gang: Gang, task: Task) -> list[str]:
    """The arguments of one task. A name without a value in this task stays as it is written."""
    values = {"world": str(world(gang.tasks))}
    if task.rank is not None:
        values.update(rank=str(task.rank), coordinator=gang.addresses[leader(gang.tasks).name])

    def value(found: re.Match[str]) -> str:
        return f"{{{found[1]}}}" if found[1] else values.get(found[2], found[0])

    return [_PATTERN.sub(value, word) for word in args]
