"""Make Kubernetes replace a lost pod at once.

The Job controller alone waits 10 s, then 20 s, 40 s ... for each index, and for a pod on a lost node until
the node is back. It does not count a pod without its finalizer, and replaces it within a second; but it acts
one second after the first change, so the client has to be quicker.

A pod is released as soon as it is being deleted, so that another may start while it ends. A leader that is
saving notes that on the claim, and its successor waits for it. A leader without a claim is released only when
none of its containers runs, or when its node cannot say.
"""

from __future__ import annotations

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api, uid_of
from oarlock.engines.kubernetes.api.names import LEAD, ROLE, STORE_VOLUME, Object

_FINALIZER = "batch.kubernetes.io/job-tracking"
# Only this one: other controllers may have finalizers on it, and reasons for them.
_RELEASE = {"metadata": {"$deleteFromPrimitiveList/finalizers": [_FINALIZER]}}


class Replacement:
    """Releases lost pods, given every change of a pod."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._released: set[str] = set()
        self._is_allowed = True

    def release(self, pod: Object) -> None:
        """Have the Job controller replace the pod now if it is lost or being deleted."""
        uid = pod["metadata"]["uid"]
        is_lost = _is_lost(pod)
        if not self._is_allowed or uid in self._released or not (is_lost or _may_go(pod)):
            return
        self._released.add(uid)
        try:
            self._api.change("Pod", pod, _RELEASE, "strategic-merge")
            if is_lost:
                self._api.delete("Pod", pod["metadata"]["name"], grace=0, only=uid_of(pod))
        except ApiError as error:
            self._is_allowed = error.status != 403  # a user who may only read waits for the controller


def _may_go(pod: Object) -> bool:
    labels = pod["metadata"]["labels"]
    if "deletionTimestamp" not in pod["metadata"] or ROLE not in labels or not _is_tracked(pod):
        return False
    return LEAD not in labels or _has_claim(pod)


def _has_claim(pod: Object) -> bool:
    volumes = pod["spec"].get("volumes", [])
    return any(one["name"] == STORE_VOLUME and "persistentVolumeClaim" in one for one in volumes)


def _is_lost(pod: Object) -> bool:
    """Whether no container of it runs, or its node cannot say; never true for one that saves in its grace."""
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
