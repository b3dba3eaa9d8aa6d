"""What the hooks see, on its way to the agent: at most two reports a second, from the best source.

A program's own report silences every hook (`channel`). Among hooks, a training loop beats a counter of
optimizer steps, which beats a progress bar. A hook that fails is off from then on, and a note says so
once: the program never sees its error.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from oarlock.run.observed import LOOPS
from oarlock.training.task import channel

_INTERVAL = 0.5  # seconds between two reports: the record keeps no more than that
_STRENGTH = {"tqdm": 1, "accelerate": 2, **dict.fromkeys(LOOPS, 3)}

_source: str | None = None  # the active source
_broken: set[str] = set()
_newest: dict[str, Any] | None = None  # the last report from the source
_told_at = float("-inf")  # when a report was sent
_is_closed = True  # whether the source has said that it has finished


def claim(source: str) -> bool:
    """Listen to `source` from now on, unless there is a stronger one. Returns whether it is active."""
    global _source, _newest, _told_at
    if source == _source:
        return source not in _broken
    if source in _broken or _STRENGTH[source] < _STRENGTH.get(_source or "", 0):
        return False
    _source, _newest, _told_at = source, None, float("-inf")
    return True


def tell(source: str, step: int, /, *, total: int | None = None, **metrics: Any) -> None:
    """Report a step. If a report was just sent, this one waits, and is sent if it is the last.

    Cheap enough for every step. A metric may be a tensor: it is read only when it is sent, so that the
    program does not wait for its device at every step.
    """
    global _newest, _told_at, _is_closed
    if not claim(source):
        return
    event: dict[str, Any] = {"step": int(step), **metrics, "observed": source}
    if total is not None:
        event["total"] = int(total)
    if source in LOOPS:
        event["more"] = True
    _newest, _is_closed = event, False
    now = time.monotonic()
    if now - _told_at >= _INTERVAL:
        _told_at = now
        channel.report_observed(event)
    else:
        channel.hold_observed(event)


def alive(source: str) -> None:
    """Report that the loop works though it finishes no step: it validates."""
    if source == _source and _newest is not None and not _is_closed:
        said = {key: value for key, value in _newest.items() if key not in ("step", "observed", "more")}
        tell(source, _newest["step"], **said)


def finish(source: str) -> None:
    """Report the last step; no other is due. What follows training may be silent for any length of time."""
    global _is_closed
    if source != _source or _newest is None or _is_closed:
        return
    _is_closed = True
    channel.report_observed({**_newest, **({"more": False} if source in LOOPS else {})})
    channel.flush()


def careful(source: str, function: Callable[..., None]) -> Callable[..., None]:
    """`function`, but an error does not reach the program and turns this source off."""

    @functools.wraps(function)
    def hook(*args: Any, **kwargs: Any) -> None:
        if source in _broken:
            return
        try:
            function(*args, **kwargs)
        except Exception as error:
            _broken.add(source)
            text = f"the progress of {source} is no longer shown: {type(error).__name__}: {error}"
            channel.send({"kind": "note", "text": text})

    return hook
