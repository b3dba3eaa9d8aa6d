"""Start the agent of a run on this machine before the job is read, or even the code that reads it."""

from __future__ import annotations

from collections.abc import Sequence

# Whoever writes one of these may start no agent here. (A program's own argument only costs the head start.)
_OTHERWISE = ("--on", "--resume", "--dry-run", "--help")


def begin(words: Sequence[str]) -> None:
    """Start it, if those words after `oarlock run` start a run on this machine."""
    if any(word.startswith(_OTHERWISE) for word in words):
        return
    from oarlock.engines import agent_process

    agent_process.expect()
