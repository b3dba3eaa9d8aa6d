"""How a run ended whose leading agent could not report it: what its Jobs and pods still say. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oarlock.engines.kubernetes.api.names import LEAD, RESULT, STOPPED, Object
from oarlock.engines.kubernetes.follow import pod_status


@dataclass(frozen=True)
class InferredVerdict:
    """The end of a run, as its `end` event has it."""

    state: str
    code: int
    details: Mapping[str, Any] = field(default_factory=dict)


def verdict_of(
    jobs: Sequence[Object], pods: Sequence[Object], deleted: Sequence[Object], is_log_open: bool
) -> InferredVerdict | None:
    """The end of the run; None while it runs, or while the leader's log is open and may still report it."""
    lead = next((job for job in jobs if LEAD in job["metadata"]["labels"]), None)
    if lead is None or "deletionTimestamp" in lead["metadata"]:
        return _lost("its objects are gone from the cluster: deleted, or expired (kubernetes.ttl)")
    notes = lead["metadata"].get("annotations", {})
    is_suspended = lead["spec"].get("suspend")
    if is_suspended and STOPPED in notes:
        is_over = not any(pod_status.is_alive(pod) for pod in pods)
        return InferredVerdict("stopped", 130, {"reason": notes[STOPPED]}) if is_over else None
    if is_suspended and RESULT in notes:  # by a client that ended the containers left in its pods
        return InferredVerdict(notes[RESULT], 0 if notes[RESULT] == "succeeded" else 1)
    condition = _final_condition(lead)
    return None if condition is None or is_log_open else _of_ended(condition, [*deleted, *pods])


def _of_ended(condition: Object, pods: Iterable[Object]) -> InferredVerdict:
    message = _leader_message(pods)
    if message is not None:
        details = message.get("failure") or {}
        if message.get("reason"):
            details = {**details, "reason": message["reason"]}
        return InferredVerdict(str(message.get("result", "failed")), int(message.get("code") or 0), details)
    if condition["type"] == "Failed":
        reason = f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
        return InferredVerdict("failed", 1, {"reason": reason})
    return _lost("its leader has ended, and its pod was deleted before its result was read")


def _lost(reason: str) -> InferredVerdict:
    return InferredVerdict("lost", 1, {"reason": reason})


def _final_condition(job: Object) -> Object | None:
    for condition in job.get("status", {}).get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            found: Object = condition
            return found
    return None


def _leader_message(pods: Iterable[Object]) -> dict[str, Any] | None:
    """The leading agent's result, from its termination message."""
    leading = (pod for pod in pods if LEAD in pod["metadata"]["labels"])
    for text in (text for pod in leading for text in pod_status.termination_messages(pod)):
        try:
            message = json.loads(text)
        except ValueError:
            continue
        if isinstance(message, dict) and "result" in message:
            return message
    return None
