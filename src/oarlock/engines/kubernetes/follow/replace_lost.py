"""Having Kubernetes replace a lost pod at once.

Left to itself the Job controller waits 10 s, then 20 s, 40 s ... for each index, and for a pod on a lost node
until the node is back. A pod without the controller's finalizer is counted by nobody, and replaced within a
second; but the controller looks a second after the first change, so we have to be quicker.

So a pod is let go as soon as it is asked to leave: another may start while it ends. A leader that saves what
there is to save says so on the claim, and its successor waits for that; without a claim its place is
given away only when nothing of it runs, or nobody could tell.
"""

from __future__ import annotations

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api, uid_of
from oarlock.engines.kubernetes.api.names import LEAD, ROLE, STORE_VOLUME, Object

_FINALIZER = "batch.kubernetes.io/job-tracking"
# Others may have finalizers of their own on it, and reasons for them.
_LET_GO = {"metadata": {"$deleteFromPrimitiveList/finalizers": [_FINALIZER]}}


class Replacing:
    """Looks at every change of a pod."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._let_go: set[str] = set()
        self._is_allowed = True

    def look(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        is_lost = _is_lost(pod)
        if not self._is_allowed or uid in self._let_go or not (is_lost or _may_go(pod)):
            return
        self._let_go.add(uid)
        try:
            self._api.change("Pod", pod, _LET_GO, "strategic-merge")
            if is_lost:
                self._api.delete("Pod", pod["metadata"]["name"], grace=0, only=uid_of(pod))
        except ApiError as error:
            self._is_allowed = error.status != 403  # a viewer waits with everybody else


def _may_go(pod: Object) -> bool:
    labels = pod["metadata"]["labels"]
    if "deletionTimestamp" not in pod["metadata"] or ROLE not in labels or not _is_tracked(pod):
        return False
    return LEAD not in labels or _has_claim(pod)


def _has_claim(pod: Object) -> bool:
    volumes = pod["spec"].get("volumes", [])
    return any(one["name"] == STORE_VOLUME and "persistentVolumeClaim" in one for one in volumes)


def _is_lost(pod: Object) -> bool:
    """Nothing of it runs, or nobody could tell: never one that is still saving its work in its grace."""
    status = pod.get("status", {})
    if not _is_tracked(pod) or status.get("phase") == "Succeeded":
        return False
    if status.get("phase") == "Failed":
        return True
    if "deletionTimestamp" not in pod["metadata"]:
        return False
    containers = status.get("containerStatuses") or []
    if containers and all("terminated" in one.get("state", {}) for one in containers):
        return True
    return _holds(pod, "DisruptionTarget", "True", "DeletionByTaintManager") and _holds(pod, "Ready", "False")


def _is_tracked(pod: Object) -> bool:
    return _FINALIZER in pod["metadata"].get("finalizers", [])


def _holds(pod: Object, kind: str, status: str, reason: str | None = None) -> bool:
    return any(
        one["type"] == kind and one["status"] == status and reason in (None, one.get("reason"))
        for one in pod["status"].get("conditions") or []
    )
