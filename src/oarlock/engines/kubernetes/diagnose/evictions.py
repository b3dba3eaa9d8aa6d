"""Pods that were removed: their node is lost or drained, or other work has a higher priority. Pure."""

from __future__ import annotations

import re

from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.diagnose.evidence import Evidence, condition, role_of, statuses, task_of
from oarlock.engines.kubernetes.diagnose.problem import Finding, Weight, cut

_ELSEWHERE = "wait: it starts again on another node"


def lost(pod: Object, evidence: Evidence) -> Finding | None:
    """Why a pod was evicted, disrupted or lost with its node; None if it was not."""
    if pod["status"].get("phase") == "Succeeded":
        return None
    found = _evicted(pod, evidence) or _disrupted(pod) or _unanswered(pod)
    return Finding(Weight.LOST, task_of(pod), *found) if found else None


def _evicted(pod: Object, evidence: Evidence) -> tuple[str, str] | None:
    reason, message = pod["status"].get("reason"), str(pod["status"].get("message", ""))
    node = pod["spec"].get("nodeName", "?")
    if reason == "Evicted":
        if matched := re.search(r"low on resource: ([\w-]+)", message):
            what = "disk" if "storage" in matched[1] or "inode" in matched[1] else matched[1]
            setting = "keep less in /tmp, or move it to a volume (kubernetes.volumes)"
            if what == "memory":
                setting = f"ask for what it uses with {evidence.setting(role_of(pod), 'memory')}"
            return f"node {node} was low on {what} and evicted it", setting
        return f"was evicted from node {node}: {cut(message, 120)}", "keep less in its folders, or allow more"
    if reason == "DeadlineExceeded":
        said = "was ended because its pod reached its time limit"
        return said, "take activeDeadlineSeconds out of kubernetes.pod"
    if reason in ("Terminated", "NodeShutdown"):
        return f"node {node} was shut down", _ELSEWHERE
    if reason:  # OutOfcpu, NodeAffinity, UnexpectedAdmissionError
        return f"node {node} would not take it ({reason}): {cut(message, 100)}", _ELSEWHERE
    return None


def _disrupted(pod: Object) -> tuple[str, str] | None:
    disruption = condition(pod, "DisruptionTarget")
    if disruption.get("status") != "True":
        return None
    node = pod["spec"].get("nodeName", "?")
    reason = disruption.get("reason")
    if reason == "PreemptionByScheduler":
        said = f"had to leave node {node} for work of higher priority"
        return said, "wait until there is room again, or give it a kubernetes.priority_class of its own"
    if reason == "EvictionByEvictionAPI":
        return f"was evicted from node {node}, which is being drained", _ELSEWHERE
    if reason in ("DeletionByTaintManager", "DeletionByPodGC"):
        return f"its node {node} is lost", _ELSEWHERE
    return f"had to leave node {node}: {cut(str(disruption.get('message', reason)), 120)}", _ELSEWHERE


def _unanswered(pod: Object) -> tuple[str, str] | None:
    """A pod whose node does not answer: not ready, and without the reason that its own node would give."""
    ready = condition(pod, "Ready")
    if pod["status"].get("phase") != "Running" or ready.get("status") != "False" or ready.get("reason"):
        return None
    if not any("running" in (status.get("state") or {}) for status in statuses(pod)):
        return None
    node = pod["spec"].get("nodeName", "?")
    return f"its node {node} does not answer", "wait: if it stays away, the task starts again on another node"
