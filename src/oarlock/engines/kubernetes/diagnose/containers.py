"""Containers that wait, run out of memory or crash repeatedly. Pure."""

from __future__ import annotations

import re

from oarlock.agent.record.pod_lines import MARK
from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.diagnose import claims, images
from oarlock.engines.kubernetes.diagnose.evidence import (
    Evidence,
    job_name,
    role_of,
    statuses,
    task_of,
    without_shm,
)
from oarlock.engines.kubernetes.diagnose.problem import Finding, Weight, cut
from oarlock.quantities import Size

KILLED = 137
_AGAIN = 2  # restarts; the first follows at once and may have any reason
_RECENT = 600.0  # seconds; after that Kubernetes, too, forgets that a container crashed
_YOUNG = 30.0  # seconds in which a volume may not be there yet
_STARTING = ("ContainerCreating", "PodInitializing")
_MOUNTING = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
_NOT_OURS = (143, 255)  # SIGTERM; a node that was switched off and on


def troubled(pod: Object, evidence: Evidence) -> Finding | None:
    """The problem of a pod's containers, if there is one."""
    for status in statuses(pod):
        found = _waiting(pod, status, evidence) or _ended(pod, status, evidence)
        if found is not None:
            return found
    return None


def is_starting(pod: Object) -> bool:
    """Whether a container is being created."""
    return any(_reason(status) in _STARTING for status in statuses(pod))


def is_unpulled(pod: Object) -> bool:
    """Whether an image cannot be pulled."""
    return any(_reason(status) in images.REASONS for status in statuses(pod))


def out_of_memory(pod: Object, evidence: Evidence) -> Finding:
    """The finding for a container that was killed because of memory."""
    limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    limit = limits.get("memory")
    if limit is None:
        said, fix = "was killed because its node ran out of memory", "set a memory limit"
        return Finding(Weight.MEMORY, task_of(pod), said, fix)
    amount = without_shm(pod["spec"], str(limit))
    setting = evidence.setting(role_of(pod), "memory", _twice(amount))
    said = f"was killed because it used more than its {amount} of memory"
    return Finding(Weight.MEMORY, task_of(pod), said, f"give it more with {setting}, or use smaller batches")


def last_words(message: str) -> str:
    """The last line for people in the end of a log or in a termination message."""
    lines = [line for line in message.splitlines() if line.strip() and not line.startswith(MARK)]
    return lines[-1].strip().removeprefix("oarlock: ") if lines else ""


def _waiting(pod: Object, status: Object, evidence: Evidence) -> Finding | None:
    reason = _reason(status)
    if reason is None:
        return None
    message = str(status["state"]["waiting"].get("message", ""))
    if reason in images.REASONS:
        return images.unpulled(pod, status, evidence)
    if reason in _STARTING:
        return _unmounted(pod, evidence)
    if reason == "CreateContainerConfigError":
        if "run as root" in message or "non-numeric user" in message:
            return images.runs_as_root(pod, status)
        return _lacking(pod, message)
    if reason in ("CreateContainerError", "RunContainerError"):
        return images.unstartable(pod, status, message)
    return None


def _unmounted(pod: Object, evidence: Evidence) -> Finding | None:
    """A pod that cannot mount its volumes. A few pods' events are read: other pods of a Job lack the same."""
    texts = evidence.about(pod, *_MOUNTING)
    if not texts:
        mates = [mate for mate in evidence.pods if job_name(mate) == job_name(pod) and is_starting(mate)]
        texts = [text for mate in mates for text in evidence.about(mate, *_MOUNTING) if "not found" in text]
    for text in texts:
        found = claims.unmounted(pod, text) or (_lacking(pod, text) if _missing(text) else None)
        if found is not None:
            return found
    if not texts or evidence.age(pod["metadata"].get("creationTimestamp")) < _YOUNG:
        return None
    said = f"cannot start on node {pod['spec'].get('nodeName', '?')}: {cut(texts[0], 120)}"
    return Finding(Weight.IMAGE, task_of(pod), said, "wait; if it stays so, ask the cluster's administrator")


def _lacking(pod: Object, message: str) -> Finding:
    kind, name, key = _missing(message) or ("", "", "")
    if not kind:
        said, fix = f"cannot be set up: {cut(message, 140)}", "correct kubernetes.secrets or kubernetes.pod"
    elif key:
        said = f"{kind} {name} has no key {key}"
        fix = f"correct kubernetes.secrets.{name}.env, or add the key"
    elif kind == "secret":
        said = f"there is no secret {name} in the namespace"
        fix = f"create it (kubectl create secret generic {name} ...) or correct kubernetes.secrets"
    else:
        said, fix = f"there is no {kind} {name} in the namespace", "create it, or correct kubernetes.pod"
    return Finding(Weight.IMAGE, task_of(pod), said, fix)


def _missing(text: str) -> tuple[str, str, str] | None:
    """The kind, name and perhaps key of a missing object."""
    if matched := re.search(r"couldn't find key (\S+) in (\w+) [^/]+/(\S+)", text):
        return matched[2].lower(), matched[3], matched[1]
    if matched := re.search(r"references non-existent (secret|config) key: (\S+)", text):
        return matched[1], "", matched[2]
    if matched := re.search(r'(secret|configmap) "([^"]+)" not found', text):
        return matched[1], matched[2], ""
    return None


def _ended(pod: Object, status: Object, evidence: Evidence) -> Finding | None:
    state = status.get("state") or {}
    ended = state.get("terminated") or (status.get("lastState") or {}).get("terminated")
    if not ended or not ended.get("exitCode") or evidence.age(ended.get("finishedAt")) > _RECENT:
        return None
    message = str(ended.get("message", ""))
    if ended.get("reason") in ("StartError", "ContainerCannotRun"):
        return images.unstartable(pod, status, message)
    if ended.get("reason") == "OOMKilled" and ended["exitCode"] == KILLED:
        return out_of_memory(pod, evidence)
    restarts = status.get("restartCount", 0)
    is_looping = _reason(status) == "CrashLoopBackOff" or restarts >= _AGAIN
    is_over = pod["status"].get("phase") == "Failed" and ended["exitCode"] not in _NOT_OURS
    if not is_looping and not is_over:
        return None
    return _crashing(pod, ended["exitCode"], restarts, message)


def _crashing(pod: Object, code: int, restarts: int, message: str) -> Finding:
    words = last_words(message)
    often = " repeatedly" if restarts else ""
    said = f"its agent ends with code {code}{often}" + (f": {cut(words, 120)}" if words else "")
    fix = "correct what it says and run it again; oarlock logs has the rest"
    return Finding(Weight.CRASH, task_of(pod), said, fix)


def _reason(status: Object) -> str | None:
    waiting = (status.get("state") or {}).get("waiting")
    return waiting.get("reason") if waiting else None


def _twice(amount: str) -> str:
    try:
        return str(Size(2 * Size.parse(amount).bytes))
    except ValueError:
        return "..."
