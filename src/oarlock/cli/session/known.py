"""The run that a verb works on, as its record names it: a cluster is asked only for one without a record."""

from __future__ import annotations

from oarlock.cli.session import find_run
from oarlock.errors import UnknownRun
from oarlock.records import runs


def find(name: str | None) -> runs.RunFolder:
    """By its name, the latest without one; one that was sent from elsewhere gets a record here."""
    try:
        return runs.find(name)
    except UnknownRun:
        return find_run.find(name)
