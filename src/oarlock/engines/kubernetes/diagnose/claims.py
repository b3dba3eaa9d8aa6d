"""Claims that are missing, or without a volume. Pure."""

from __future__ import annotations

import re

from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.diagnose.evidence import Evidence, claim_names, task_of
from oarlock.engines.kubernetes.diagnose.problem import Finding, Weight, cut

_PATIENCE = 30.0  # seconds that creating a volume may take
_LIST = "kubectl get storageclass lists them"


def concerns(message: str) -> bool:
    """Whether the scheduler's message is about a claim and not about nodes."""
    return "persistentvolumeclaim" in message.lower() or "binding volumes" in message


def unbound(pod: Object, message: str, evidence: Evidence) -> Finding | None:
    """Why a claim of the pod has no volume; None if it is only new."""
    if matched := re.search(r'persistentvolumeclaim "([^"]+)" not found', message):
        return _finding(
            pod,
            f"there is no claim {matched[1]} in the namespace",
            "name one of kubectl get pvc, or let Oarlock create it: --set kubernetes.claim.size=10Gi",
        )
    if matched := re.search(r'persistentvolumeclaim "([^"]+)" is being deleted', message):
        said = f"claim {matched[1]} is being deleted"
        return _finding(pod, said, "wait until it is gone and run again, or use another claim")
    if "ReadWriteOncePod" in message:
        names = ", ".join(claim_names(pod))
        said = f"claim {names} is ReadWriteOncePod and another pod has it"
        return _finding(pod, said, "end the run that uses it (oarlock ps lists them)")
    for claim in evidence.claims_of(pod):
        if claim["status"].get("phase") != "Bound" and (found := _pending(pod, claim, evidence)):
            return found
    return None


def unmounted(pod: Object, message: str) -> Finding | None:
    """The finding for a claim that is in use on another node."""
    if "Multi-Attach error" not in message:
        return None
    claim = ", ".join(claim_names(pod)) or "a claim"
    users = re.search(r"used by pod\(s\) (.+)", message)
    said = f"claim {claim} is in use on another node" + (f", by {cut(users[1], 80)}" if users else "")
    if users and "-tensorboard-" in users[1]:
        said += ", which may be a TensorBoard that `oarlock tensorboard --deploy` started"
        return Finding(Weight.PLACE, task_of(pod), said, "`oarlock tensorboard --delete RUN` removes that")
    fix = "end the run that uses it (oarlock ps), wait 6 minutes if its node was lost, or use ReadWriteMany"
    return Finding(Weight.PLACE, task_of(pod), said, fix)


def _pending(pod: Object, claim: Object, evidence: Evidence) -> Finding | None:
    name = claim["metadata"]["name"]
    texts = evidence.about(claim, "ProvisioningFailed", "FailedBinding", "ExternalProvisioning")
    failed = evidence.about(claim, "ProvisioningFailed")
    setting = "kubernetes.claim.storage_class"
    for text in failed:
        if matched := re.search(r'storageclass\S* "([^"]+)" not found', text):
            said = f"claim {name} wants the storage class {matched[1]}, which the cluster does not have"
            return _finding(
                pod, said, f"delete claim {name} and choose another with --set {setting}=...; {_LIST}"
            )
    if failed:
        said = f"no volume can be made for claim {name}: {cut(failed[0], 100)}"
        return _finding(pod, said, f"ask the administrator, or choose another class with --set {setting}=...")
    if any("no storage class is set" in text for text in texts):
        said = f"claim {name} names no storage class and the cluster has no default"
        return _finding(pod, said, f"delete claim {name} and choose one with --set {setting}=...; {_LIST}")
    if evidence.age(claim["metadata"].get("creationTimestamp")) < _PATIENCE:
        return None
    maker = next((found[1] for text in texts if (found := re.search(r"provisioner '([^']+)'", text))), None)
    said = f"claim {name} waits for a volume" + (f" that {maker} does not make" if maker else "")
    return _finding(
        pod, said, f"ask the administrator, or choose another class with --set {setting}=...; {_LIST}"
    )


def _finding(pod: Object, said: str, fix: str) -> Finding:
    return Finding(Weight.PLACE, task_of(pod), said, fix)
