"""Images that cannot be pulled or cannot start. Pure."""

from __future__ import annotations

import re

from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.diagnose.evidence import Evidence, task_of
from oarlock.engines.kubernetes.diagnose.problem import Finding, Weight, cut

REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_NAME = "correct the name with --set kubernetes.image=..."
_DENIED = ("denied", "unauthorized", "authorization failed", "403 forbidden", "401 unauthorized")
_GONE = (": not found", "manifest unknown", "name unknown", "code = notfound")
_AWAY = ("dial tcp", "no such host", "i/o timeout", "connection refused", "certificate", "tls", "deadline")


def unpulled(pod: Object, status: Object, evidence: Evidence) -> Finding:
    """The finding for an image that cannot be pulled."""
    image = _image(pod, status)
    waiting = status["state"]["waiting"]
    pulls = [text for text in evidence.about(pod, "Failed") if "pull" in text]
    text = "\n".join([str(waiting.get("message", "")), *pulls])
    said, fix = _explained(image, waiting["reason"], text, _lost_secret(pod, evidence))
    return Finding(Weight.IMAGE, task_of(pod), said, fix)


def unstartable(pod: Object, status: Object, message: str) -> Finding:
    """The finding for an image that is pulled and whose first process does not start."""
    image = _image(pod, status)
    if matched := re.search(r'exec: "([^"]+)": (?:executable file not found|stat .*no such file)', message):
        said = f"image {image} has no {matched[1]}"
        fix = "choose one with Python 3.9 or newer, such as --set kubernetes.image=python:3.11-slim"
    elif "exec format error" in message or "no match for platform" in message:
        said = f"image {image} is made for another kind of processor than the node's"
        fix = "choose an image for it, or nodes of its kind with kubernetes.node_selector"
    else:
        said = f"image {image} cannot be started: {cut(message.rpartition('process: ')[2] or message, 100)}"
        fix = "try another image with --set kubernetes.image=..., or correct kubernetes.pod"
    return Finding(Weight.IMAGE, task_of(pod), said, fix)


def runs_as_root(pod: Object, status: Object) -> Finding:
    """The finding for an image whose user is root."""
    image = _image(pod, status)
    said = f"image {image} runs as root, which Oarlock's pods may not"
    return Finding(Weight.IMAGE, task_of(pod), said, "name a user: --set kubernetes.user=1000")


def _explained(image: str, reason: str, text: str, secret: str | None) -> tuple[str, str]:
    lower = text.lower()
    if reason == "InvalidImageName":
        why = re.search(r"invalid reference format: (.*)", text)
        return f"{image} is not the name of an image" + (f": {why[1]}" if why else ""), _NAME
    if reason == "ErrImageNeverPull":
        return (
            f"image {image} is not on the node, and pull_policy is Never",
            "let it be pulled: --set kubernetes.pull_policy=IfNotPresent",
        )
    if secret is not None:
        return (
            f"image {image} cannot be pulled: there is no secret {secret} to pull it with",
            "correct kubernetes.pull_secrets, or create it: "
            f"kubectl create secret docker-registry {secret} ...",
        )
    if any(words in lower for words in _DENIED):
        return (
            f"image {image} does not exist, or its registry wants a login",
            "correct the name, or name a secret to pull it with: --set kubernetes.pull_secrets=[...]",
        )
    if "toomanyrequests" in lower or "429" in lower:
        return (
            f"image {image} cannot be pulled now: its registry has received too many requests",
            "wait, or log in with --set kubernetes.pull_secrets=[...]",
        )
    if "no match for platform" in lower:
        return (
            f"image {image} is not made for the node's kind of processor",
            "choose an image for it, or nodes of its kind with kubernetes.node_selector",
        )
    if any(words in lower for words in _GONE):
        return f"there is no image {image}", _NAME
    if any(words in lower for words in _AWAY):
        symptom = "connection refused" if "connection refused" in lower else "it does not answer"
        return (
            f"the registry of image {image} cannot be reached from the node: {symptom}",
            "correct the name with --set kubernetes.image=..., or ask for a registry that nodes can reach",
        )
    return f"image {image} cannot be pulled: {cut(text.rpartition(': ')[2], 100)}", _NAME


def _image(pod: Object, status: Object) -> str:
    """The image as the job names it: the node may have another name for it."""
    every = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
    return next((str(one["image"]) for one in every if one["name"] == status["name"]), "?")


def _lost_secret(pod: Object, evidence: Evidence) -> str | None:
    for text in evidence.about(pod, "FailedToRetrieveImagePullSecret"):
        if matched := re.search(r"secrets? \(([^)]+)\)", text):
            return matched[1]
    return None
