"""Which task's failure ended a generation, and in which words to say it. Pure.

When one member dies the others fail within milliseconds, complaining about their peers. The one
to name is the one that a signal killed (its peers raise, it could not), else the first to fail.
SIGABRT does not count as a signal: it is how JAX and TensorFlow give up on a lost peer.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

from oarlock.agent.member import Member


def find(members: Iterable[Member]) -> Member | None:
    failed = [member for member in members if member.failed_at is not None]
    if not failed:
        return None
    return min(failed, key=lambda member: (not _was_killed(member), member.failed_at))


def describe(member: Member) -> dict[str, Any]:
    """Fields of a `restart` or `end` event."""
    told: dict[str, Any] = {"task": member.name, "reason": _reason(member)}
    if member.error:
        told.update({key: member.error.get(key) for key in ("type", "message", "where")})
    return told


def signature(member: Member) -> str:
    error = member.error or {}
    return f"{error.get('type')}|{error.get('message')}|{error.get('where')}|{member.code}"


def _was_killed(member: Member) -> bool:
    if member.ours or member.is_alive:
        return False
    return member.signal is not None and member.signal != signal.SIGABRT


def _reason(member: Member) -> str:
    if member.error:
        return f"{member.error.get('type')}: {member.error.get('message')}"
    if member.is_alive or member.ours:
        return "it made no progress"
    if member.signal is not None:
        return f"killed by {signal.Signals(member.signal).name}"
    return f"exit code {member.code}"
