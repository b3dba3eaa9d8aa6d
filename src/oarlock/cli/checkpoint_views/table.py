"""Checkpoints as a table, newest first, with what is wrong with those that are not whole."""

from __future__ import annotations

import time
from collections.abc import Sequence

from oarlock.engines.shared.checkpoint_folder import Entry
from oarlock.screens.output import print_table, say
from oarlock.units import duration, number, size

_HEADER = ("STEP", "EPOCH", "SAVED", "GENERATION", "WORKERS", "SIZE", "METRICS", "WHERE", "STATE")
_METRICS = 3


def print_all(name: str, checkpoints: Sequence[Entry], others: str | None) -> None:
    """Print the table, and a line about another run that owns the folder."""
    if checkpoints:
        print_table(_HEADER, [_row(one, time.time()) for one in checkpoints])
    else:
        say(f"{name} has no checkpoints yet")
    if others:
        say(others)


def _row(one: Entry, now: float) -> tuple[str, ...]:
    return (
        one["name"] if one["step"] is None else str(one["step"]),
        _known(one["epoch"]),
        "" if one["saved"] is None else f"{duration(now - one['saved'])} ago",
        _known(one["generation"]),
        _known(one["workers"]),
        size(one["size"]),
        "  ".join(_metrics(one)),
        one["where"],
        one["state"] if one["why"] is None else f"{one['state']}: {one['why']}",
    )


def _known(value: int | None) -> str:
    return "" if value is None else str(value)


def _metrics(one: Entry) -> list[str]:
    """The loss, then the metrics that the program named first."""
    names = sorted(one["metrics"], key=lambda name: name != "loss")
    return [f"{name} {number(one['metrics'][name])}" for name in names[:_METRICS]]
