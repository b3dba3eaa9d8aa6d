"""What the status of a pod says. Pure."""

from __future__ import annotations

from oarlock.engines.kubernetes.api.names import CONTAINER, INDEX, LEAD, ROLE, Object


def restarts_of(pod: Object) -> int:
    """How often the kubelet has restarted the task's container."""
    return max((one.get("restartCount", 0) for one in _own(pod)), default=0)


def has_started(pod: Object) -> bool:
    """Whether there may be a log to read."""
    return any(
        "running" in one.get("state", {}) or "terminated" in one.get("state", {}) or one.get("restartCount")
        for one in _own(pod)
    )


def has_ended(pod: Object) -> bool:
    """Whether all containers of the pod have ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_alive(pod: Object) -> bool:
    """Whether the pod runs, or may still start."""
    return pod.get("status", {}).get("phase") in ("Pending", "Running")


def is_well(pod: Object) -> bool:
    """Whether the pod is ready or has succeeded, and is not being deleted."""
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return False
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or [])
    return status.get("phase") == "Succeeded" or (status.get("phase") == "Running" and ready)


def has_side_car(pod: Object) -> bool:
    """Whether a container other than the task's runs in it."""
    return any(one["name"] != CONTAINER and "running" in one.get("state", {}) for one in _statuses(pod))


def has_finished_task(pod: Object) -> bool:
    """Whether the task's container has ended and stays that way."""
    ended = [one.get("state", {}).get("terminated") for one in _own(pod)]
    return bool(ended) and all(one is not None and one.get("exitCode") == 0 for one in ended)


def image_of(pod: Object) -> tuple[str, str]:
    """The image as the job names it, and its digest on the pod's node; '' until that is known."""
    image = next((one["image"] for one in pod["spec"]["containers"] if one["name"] == CONTAINER), "")
    pulled = next((str(one.get("imageID", "")) for one in _own(pod)), "")
    return image, pulled.rpartition("@")[2].rpartition("//")[2]


def termination_messages(pod: Object) -> list[str]:
    """What each ended container has written as its termination message."""
    ended = [one.get("state", {}).get("terminated") or {} for one in _statuses(pod)]
    return [str(one["message"]) for one in ended if "message" in one]


def by_rank(pods: dict[str, Object], most: int) -> list[str]:
    """The uids of the leader's pod and of the first others, `most` in all."""

    def order(uid: str) -> tuple[bool, str, int]:
        labels = pods[uid]["metadata"]["labels"]
        return LEAD not in labels, labels[ROLE], int(labels.get(INDEX, 0))

    return sorted((uid for uid in pods if ROLE in pods[uid]["metadata"]["labels"]), key=order)[:most]


def _own(pod: Object) -> list[Object]:
    return [one for one in _statuses(pod) if one["name"] == CONTAINER]


def _statuses(pod: Object) -> list[Object]:
    statuses: list[Object] = pod.get("status", {}).get("containerStatuses") or []
    return statuses
