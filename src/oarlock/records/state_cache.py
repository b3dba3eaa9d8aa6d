"""The state of a long run, kept beside its events: the next reader folds only new events.

It is a cache. If it does not fit (another version wrote it, it is damaged, the events differ), all events
are folded again; if it cannot be written, nothing is kept.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from oarlock import __version__
from oarlock.run.run_events import decode
from oarlock.run.run_state import RunState
from oarlock.run.typed import VERSION
from oarlock.system.atomic_file import write_whole

WORTH = 1 << 20  # bytes of events: fewer are folded in a tenth of a second
_TAIL = 4096  # bytes before the position, by which the events are recognized
_WRITER = f"{__version__}, {VERSION}"


def state_of(run: str, events: Path, cache: Path) -> RunState:
    """Return the state after all events. Raises FileNotFoundError if there are none."""
    with events.open("rb") as lines:
        state, start = _kept(run, lines, cache)
        lines.seek(start)
        place, last = start, b""
        for line in lines:
            if not line.endswith(b"\n"):
                last = line  # it may continue
                break
            _apply(state, line)
            place += len(line)
        if place - start >= WORTH:
            _keep(state, place, lines, cache)
    if last:
        _apply(state, last)
    return state


def _apply(state: RunState, line: bytes) -> None:
    event = decode(line.decode("utf-8", "replace"))
    if event is not None:
        state.apply(event)


def _kept(run: str, lines: BinaryIO, cache: Path) -> tuple[RunState, int]:
    """Return the cached state and the position up to which it holds; an empty state if none fits."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found: dict[str, Any] = json.loads(cache.read_bytes())
        place = found["place"]
        if found["writer"] == _WRITER and found["tail"] == _tail(lines, place):
            return RunState.from_data(found["state"]), place
    return RunState(run), 0


def _keep(state: RunState, place: int, lines: BinaryIO, cache: Path) -> None:
    data = {**state.to_data(), "tasks": [asdict(task) for task in state.tasks.values()]}
    kept = {"writer": _WRITER, "place": place, "tail": _tail(lines, place), "state": data}
    with suppress(OSError):
        write_whole(cache, json.dumps(kept).encode(), writer=str(os.getpid()))


def _tail(lines: BinaryIO, place: int) -> str:
    lines.seek(max(0, place - _TAIL), io.SEEK_SET)
    return hashlib.sha256(lines.read(min(place, _TAIL))).hexdigest()
