"""Checks events from another process, and shortens what is too long for the record. Pure."""

from __future__ import annotations

from typing import Any

from oarlock.agent.protocol.wire import WireError
from oarlock.run import run_events
from oarlock.run.run_events import Event

_METRIC, _METRIC_VALUE = 100, 1000  # characters
_FIELDS = frozenset({"text", "fix", "message", "where", "type", "modules"})  # these may be longer


def event(data: Any, kinds: tuple[str, ...]) -> Event:
    """Read an event of one of these kinds. Raises WireError."""
    found = run_events.read(data)
    if found is None or found["kind"] not in kinds:
        raise WireError("not a valid event")
    return {name: value for name, value in found.items() if name in _FIELDS or _is_small(name, value)}


def _is_small(name: str, value: Any) -> bool:
    """Whether a metric, or a field of a later version, is short. `run_events` has checked all others."""
    return len(name) <= _METRIC and (
        not isinstance(value, (str, list, dict)) or len(str(value)) <= _METRIC_VALUE
    )
