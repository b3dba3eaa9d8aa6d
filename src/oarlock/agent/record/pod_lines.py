"""The lines that an agent prints in a pod, whose standard output is all that clients see of it. Pure.

    ::oarlock {"n": 3, "of": 1763200000.5, "t": ..., "kind": ...}     the run's third event
    worker-1/2 | loss 0.31                                          a line of worker-1 in generation 2
    worker-1/2 ~ 45%|####      | 45/100                             a line that it has begun but not ended

`n` counts the events of one record and `of` identifies that record (by the time of its first event), so that
a reader recognizes events that it sees twice because the leading agent was replaced. All other lines are the
agent's own.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from oarlock.run import run_events
from oarlock.run.typed import number, whole

MARK = "::oarlock "
_LINE = re.compile(r"((?:ingest-)?[a-z]+-\d+)/(\d+) ([|~]) ", re.ASCII)


class EventLine(NamedTuple):
    """An event of the run, and its position in the record."""

    number: int
    record: float
    event: dict[str, Any]


class TaskLine(NamedTuple):
    """A line of a task's output."""

    task: str
    generation: int
    text: str
    is_whole: bool = True


def event(number: int, record: float, fields: dict[str, Any]) -> bytes:
    """The line for the record's `number`-th event."""
    return (MARK + run_events.encode({"n": number, "of": record, **fields}) + "\n").encode()


def prefix(task: str, generation: int, *, is_whole: bool = True) -> bytes:
    """The start of every line of a task's output. Not `is_whole`: of a line that it has only begun."""
    return f"{task}/{generation} {'|' if is_whole else '~'} ".encode()


def parse(line: str) -> EventLine | TaskLine | None:
    """Read a line. Returns None for one of the agent's own."""
    if line.startswith(MARK):
        return _event(line[len(MARK) :])
    matched = _LINE.match(line)
    if matched is None:
        return None
    return TaskLine(matched[1], int(matched[2]), line[matched.end() :], is_whole=matched[3] == "|")


def _event(text: str) -> EventLine | None:
    event = run_events.decode(text)
    if event is None:
        return None
    count, record = whole(1)(event.pop("n", None)), number(0)(event.pop("of", None))
    return None if count is None or record is None else EventLine(count, float(record), event)
