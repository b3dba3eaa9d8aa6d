"""Pods that fit on no node: the scheduler's message in words for the user. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from oarlock.engines.kubernetes.api.names import BY_INGEST, Object
from oarlock.engines.kubernetes.diagnose import claims
from oarlock.engines.kubernetes.diagnose.evidence import (
    Evidence,
    annotations_of,
    claim_names,
    condition,
    requested,
    role_of,
    task_of,
)
from oarlock.engines.kubernetes.diagnose.problem import Finding, Weight, cut

_GPU = "nvidia.com/gpu"
_FIELDS = {"cpu": "cpu", "memory": "memory", _GPU: "gpu"}
_UNITS = {"cpu": "cpu", "memory": "of memory", _GPU: "GPUs"}
_OWN = "node-role.kubernetes.io/"  # taints of the control plane's nodes
_WAIT = "wait until other work ends"
_UNHEARD = 30.0  # seconds; a scheduler that exists answers within one


class _Reason(NamedTuple):
    """Why some of the nodes do not fit."""

    nodes: str  # how many
    text: str


def unplaced(pod: Object, evidence: Evidence) -> Finding | None:
    """Why a pod is not scheduled; None if it is."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "True" or pod["status"].get("phase") != "Pending":
        return None
    if not scheduled:
        return _unheard(pod, evidence)
    message = str(scheduled.get("message", ""))
    if scheduled.get("reason") == "SchedulingGated":
        gates = ", ".join(gate["name"] for gate in pod["spec"].get("schedulingGates") or [])
        return _finding(pod, f"is held back by the gate {gates}", "wait, or ask the cluster's administrator")
    if claims.concerns(message):
        return claims.unbound(pod, message, evidence)
    return _misfit(pod, message, evidence)


def _unheard(pod: Object, evidence: Evidence) -> Finding | None:
    name = pod["spec"].get("schedulerName") or "default-scheduler"
    if evidence.age(pod["metadata"].get("creationTimestamp")) < _UNHEARD:
        return None
    said = f"no scheduler has looked at it: is there one called {name}?"
    return _finding(
        pod, said, "leave kubernetes.scheduler out, or ask the cluster's administrator for its name"
    )


def _misfit(pod: Object, message: str, evidence: Evidence) -> Finding:
    total, reasons = _reasons(message)
    if not reasons:
        return _finding(pod, f"cannot be placed: {cut(message, 150)}", "kubectl describe pod says more")
    parts = [f"{reason.nodes} of {total} {_worded(pod, reason.text)}" for reason in reasons]
    said = f"no node fits: {'; '.join(parts)}"
    if evidence.about(pod, "TriggeredScaleUp"):
        return _finding(pod, said, "wait: the cluster is adding a node")
    fixes = dict.fromkeys(
        fix
        for reason in sorted(reasons, key=_by_use)
        if (fix := _fix(pod, reason.text, evidence)) is not None
    )
    chosen = list(fixes)[:2]
    is_busy = "No preemption victims" in message and any(_lacking(reason.text) for reason in reasons)
    if is_busy and _WAIT not in chosen:
        chosen.insert(0, _WAIT)
    return _finding(pod, said, ", or ".join(chosen) or "ask the cluster's administrator")


def _reasons(message: str) -> tuple[str, list[_Reason]]:
    """Read `0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had .... preemption: ...`."""
    matched = re.match(r"\d+/(\d+) nodes are available: (.*?)(?:\. |\.$|$)", message, re.DOTALL)
    if matched is None:
        return "", []
    total, text = matched.groups()
    parts = [re.fullmatch(r"(\d+) (.*)", part, re.DOTALL) for part in re.split(r", (?=\d)", text)]
    return total, [_Reason(part[1], part[2].rstrip(".")) for part in parts if part]


def _worded(pod: Object, text: str) -> str:
    if resource := _lacking(text):
        amount = requested(pod, resource) or "enough"
        return f"lack {amount} {_UNITS.get(resource, resource)} free"
    if (taint := _taint(text)) is not None:
        return f"have the taint {taint}" if taint else "have a taint that it does not tolerate"
    if _is_selector(text):
        return f"lack the labels {_selector(pod)}"
    if _is_volume(text):
        return f"cannot reach the volume of claim {', '.join(claim_names(pod)) or '?'}"
    if "were unschedulable" in text:
        return "take no new pods (cordoned)"
    if "Too many pods" in text:
        return "run as many pods as they may"
    return cut(text.removeprefix("node(s) "), 80)


def _fix(pod: Object, text: str, evidence: Evidence) -> str | None:
    if resource := _lacking(text):
        field = _FIELDS.get(resource)
        setting = evidence.setting(role_of(pod), field) if field else "kubernetes.pod"
        if field in annotations_of(pod).get(BY_INGEST, "").split():  # it runs the ingest first
            setting = f"{setting} and --set ingest.{field}=..."
        return f"ask for less with {setting}"
    if (taint := _taint(text)) is not None:
        if taint.startswith(_OWN):
            return None
        if taint.startswith("node.kubernetes.io/"):
            return "wait until the node is healthy again"
        key = taint.partition("=")[0] or (_GPU if requested(pod, _GPU) else "...")
        return f"tolerate it: --set 'kubernetes.tolerations=[{{key: {key}, operator: Exists}}]'"
    if _is_selector(text):
        return "choose labels that nodes have, with kubernetes.node_selector or roles.*.node_selector"
    if _is_volume(text):
        return "let it run where the volume is, or use another claim: --set kubernetes.claim=..."
    if "were unschedulable" in text:
        return "wait until nodes take pods again"
    if "Too many pods" in text:
        return _WAIT
    return None


def _by_use(reason: _Reason) -> int:
    """The order of fixes. Nodes with GPUs are tainted and the others have none: the taint comes first."""
    if (taint := _taint(reason.text)) is not None:
        return 3 if taint.startswith((_OWN, "node.kubernetes.io/")) else 1
    resource = _lacking(reason.text)
    if resource:
        return 0 if resource in ("cpu", "memory") else 2
    return 4 if _is_selector(reason.text) else 0


def _lacking(text: str) -> str | None:
    matched = re.match(r"Insufficient (\S+)", text)
    return matched[1] if matched else None


def _taint(text: str) -> str | None:
    """The taint, such as `dedicated=ml`; empty if the message does not name it, as in Kubernetes 1.36."""
    if "taint" not in text:
        return None
    matched = re.search(r"\{([^:}]+):? ?([^}]*)\}", text)
    if matched is None:
        return ""
    key, value = matched.groups()
    return f"{key}={value}" if value else key


def _is_selector(text: str) -> bool:
    return "affinity/selector" in text


def _is_volume(text: str) -> bool:
    return any(words in text for words in ("PersistentVolume", "volume node affinity", "volume zone"))


def _selector(pod: Object) -> str:
    wanted = [f"{key}={value}" for key, value in (pod["spec"].get("nodeSelector") or {}).items()]
    return ", ".join(wanted) or "that its affinity wants"


def _finding(pod: Object, said: str, fix: str) -> Finding:
    return Finding(Weight.PLACE, task_of(pod), said, fix)
