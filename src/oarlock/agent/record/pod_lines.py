"""What an agent prints in a pod, where its standard output is all that anybody sees of it. Pure.

    ::oarlock {"n": 3, "of": 1763200000.5, "t": ..., "kind": ...}     the run's third event
    worker-1/2 | loss 0.31                                          a line of worker-1, of generation 2

`n` counts the events of one record and `of` names that record (by the time of its first event), so that a
reader who sees some of them twice, because the leading agent was replaced, knows them again. All else is
the agent's own.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from oarlock.run import events
from oarlock.run.typed import number, whole

MARK = "::oarlock "
_LINE = re.compile(r"([a-z]+-\d+)/(\d+) \| ", re.ASCII)


class EventLine(NamedTuple):
    number: int
    record: float
    event: dict[str, Any]


class TaskLine(NamedTuple):
    task: str
    generation: int
    text: str


def event(number: int, record: float, told: dict[str, Any]) -> bytes:
    return (MARK + events.encode({"n": number, "of": record, **told}) + "\n").encode()


def prefix(task: str, generation: int) -> bytes:
    return f"{task}/{generation} | ".encode()


def parse(line: str) -> EventLine | TaskLine | None:
    """None for a line of the agent's own."""
    if line.startswith(MARK):
        return _event(line[len(MARK) :])
    matched = _LINE.match(line)
    return TaskLine(matched[1], int(matched[2]), line[matched.end() :]) if matched else None


def _event(text: str) -> EventLine | None:
    told = events.decode(text)
    if told is None:
        return None
    count, record = whole(1)(told.pop("n", None)), number(0)(told.pop("of", None))
    return None if count is None or record is None else EventLine(count, float(record), told)
