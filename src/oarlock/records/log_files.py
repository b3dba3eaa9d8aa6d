"""Choose lines of a run's logs, and read them without holding all of them in memory."""

from __future__ import annotations

import heapq
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice

from oarlock.agent.record import log_segments
from oarlock.agent.record.task_log import timestamp
from oarlock.errors import JobError, OarlockError
from oarlock.quantities import Duration
from oarlock.records import log_blocks
from oarlock.records.log_blocks import Block, LogLine
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Watch
from oarlock.run.run_state import RunState

_SURE = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|^Segmentation fault")
_LIKELY = re.compile(r"\b\w*(?:Error|Exception)\b|\b(?:error|fatal|panic|abort(?:ed)?)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Choice:
    """Which lines of the logs to read."""

    tasks: frozenset[str]  # empty: all
    first: int  # generations, from and to
    last: float
    since: str  # a time as log lines have it; empty: from the beginning

    def wants(self, block: Block) -> bool:
        """Return whether the lines of a block are among them."""
        return (
            self.first <= block.generation <= self.last
            and (not self.tasks or block.task in self.tasks)
            and block.time >= self.since
        )


def choose(
    run: RunFolder,
    *,
    tasks: Sequence[str],
    failed: bool,
    generation: int | None,
    previous: bool,
    since: str | None,
) -> Choice:
    """Return the choice that the options of `oarlock logs` describe.

    Raises JobError for an unknown task or time, and OarlockError if no such generation exists or no task has
    failed.
    """
    found = log_segments.generations(run.logs)
    current, latest = _current(run, found), max(found, default=0)
    names = set(tasks)
    if previous:
        generation = current - 1
    if failed:
        name, failed_in = culprit(run, generation)
        names, generation = {name}, failed_in
    if generation is not None and not 1 <= generation <= max(latest, 1):
        raise OarlockError(f"{run.name} has no generation {generation}; the latest is {latest}")
    _check_names(run, names)
    return Choice(
        frozenset(names),
        first=current if generation is None else generation,
        last=float("inf") if generation is None else generation,
        since="" if since is None else _since(since),
    )


def latest(run: RunFolder) -> Choice:
    """Choose all tasks of the latest generation."""
    return choose(run, tasks=(), failed=False, generation=None, previous=False, since=None)


def _current(run: RunFolder, found: Sequence[int]) -> int:
    """The newest generation with output, up to the one that runs.

    A served model goes back to an earlier generation if an update fails.
    """
    running = run.state().generation
    return max((one for one in found if one <= running), default=max(found, default=0))


def read(watching: Watch, choice: Choice, tail: int | None = None) -> Iterator[Block]:
    """Yield the lines that `watching` has skipped, by time; `tail`: only the last lines, read from the end.

    Each file is in order, so that merging holds only a piece of each.
    """
    chosen = {
        (generation, task): log
        for (generation, task), log in watching.logs.items()
        if choice.first <= generation <= choice.last and (not choice.tasks or task in choice.tasks)
    }
    each = [
        _blocks(key, log.before() if tail is None else (line + b"\n" for line in log.last(tail)))
        for key, log in chosen.items()
    ]
    wanted = (block for block in heapq.merge(*each, key=lambda block: block.time) if choice.wants(block))
    return wanted if tail is None else iter(deque(wanted, tail))


def dropped(watching: Watch, choice: Choice) -> Iterator[tuple[str, int]]:
    """Yield tasks whose first lines were dropped, and how many bytes that was."""
    for (generation, task), log in watching.logs.items():
        if choice.first <= generation <= choice.last and (not choice.tasks or task in choice.tasks):
            missing = log.begins()
            if missing:
                yield task, missing


def from_first_error(watching: Watch, choice: Choice) -> Iterator[LogLine]:
    """Yield lines from the first traceback on; else from the first likely error; else all lines."""
    for pattern in (_SURE, _LIKELY):
        for number, line in enumerate(_lines(watching, choice)):
            if pattern.search(line.text):
                return islice(_lines(watching, choice), number, None)
    return _lines(watching, choice)


def _lines(watching: Watch, choice: Choice) -> Iterator[LogLine]:
    return (line for block in read(watching, choice) for line in block.lines())


def _blocks(key: tuple[int, str], pieces: Iterable[bytes]) -> Iterator[Block]:
    return (block for piece in pieces for block in log_blocks.split(piece, *key))


def culprit(run: RunFolder, generation: int | None = None) -> tuple[str, int]:
    """Return the task whose failure ended a generation, and that generation; by default the last to fail.

    Raises OarlockError if no task has failed.
    """
    state, found = RunState(run.name), None
    for event in run.events():
        state.apply(event)
        is_asked_for = generation in (None, state.generation)
        if event["kind"] in ("restart", "end") and event.get("task") and is_asked_for:
            found = (event["task"], state.generation)
    if found is None:
        raise OarlockError(f"no task of {run.name} has failed")
    return found


def _check_names(run: RunFolder, names: set[str]) -> None:
    known = run.state().tasks if names else {}
    for name in names:
        if name not in known:
            raise JobError(f"{run.name} has no task {name}; it has {', '.join(known)}")


def _since(written: str) -> str:
    try:
        return timestamp(time.time() - Duration.parse(written).seconds)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", written))
    except ValueError:
        raise JobError(
            f"--since {written}: expected a duration such as 10m, or a time such as 2025-11-15T10:00"
        ) from None
    return timestamp(moment.astimezone(timezone.utc).timestamp())
