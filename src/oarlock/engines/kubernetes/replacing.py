"""Having Kubernetes replace a lost pod at once.

Left to itself the Job controller waits 10 s, then 20 s, 40 s ... for each index, and for a pod on a lost node
until the node is back. A pod that is forgotten (its finalizer taken off, then deleted by force) is replaced
within a second and counted by nobody.
"""

from __future__ import annotations

from oarlock.engines.kubernetes.api import Api, Object

_FINALIZER = "batch.kubernetes.io/job-tracking"


def is_lost(pod: Object) -> bool:
    """Nothing of it runs, or nobody could tell: never one that is still saving its work in its grace."""
    if _FINALIZER not in pod["metadata"].get("finalizers", []):
        return False
    status = pod.get("status", {})
    if status.get("phase") == "Failed":
        return True
    if "deletionTimestamp" not in pod["metadata"] or status.get("phase") == "Succeeded":
        return False
    containers = status.get("containerStatuses") or []
    if containers and all("terminated" in one.get("state", {}) for one in containers):
        return True
    return _holds(pod, "DisruptionTarget", "True", "DeletionByTaintManager") and _holds(pod, "Ready", "False")


def forget(api: Api, pod: Object) -> None:
    name = pod["metadata"]["name"]
    api.patch("Pod", name, {"metadata": {"finalizers": None}})
    api.delete("Pod", name, grace=0)


def _holds(pod: Object, kind: str, status: str, reason: str | None = None) -> bool:
    return any(
        one["type"] == kind and one["status"] == status and reason in (None, one.get("reason"))
        for one in pod["status"].get("conditions") or []
    )
