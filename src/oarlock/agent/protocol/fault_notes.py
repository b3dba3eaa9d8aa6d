"""Notes about faults that agents write into the record, and that clients look for. Pure."""

from __future__ import annotations


def continued(task: str) -> str:
    """The note in the record when a pause is over."""
    return f"chaos: continued {task}"
