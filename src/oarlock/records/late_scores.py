"""The scores that `oarlock evaluate` adds to a record: a file of their own, beside the events.

The events belong to the run's agent, or to the client that copies them from a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from oarlock.run.run_events import Event, decode, encode


def read(path: Path) -> Iterator[Event]:
    """Yield the scores in a file that may be missing."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                event = decode(line)
                if event is not None and event["kind"] == "report" and "task" in event:
                    yield event
    except FileNotFoundError:
        return


def add(path: Path, scores: Sequence[Event]) -> None:
    """Append scores, in one write: two commands may add at the same time."""
    with path.open("ab", buffering=0) as file:
        file.write("".join(f"{encode(score)}\n" for score in scores).encode())
