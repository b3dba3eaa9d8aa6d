"""Notes that agents write into the record about faults, and that clients look for. Pure."""

from __future__ import annotations


def continued(task: str) -> str:
    """What the record says when a pause is over."""
    return f"chaos: continued {task}"
