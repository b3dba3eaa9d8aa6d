"""Take pods away from a run on purpose, as a user or a drained node would (`oarlock chaos`)."""

from __future__ import annotations

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Identity
from oarlock.engines.kubernetes.claims import claim_pod

_TOO_MANY = 429  # the status with which a disruption budget refuses


def pods(api: Api, run: Identity) -> list[str]:
    """Return the names of the pods that train or serve right now."""
    found = api.all("Pod", run.members)
    return sorted(str(pod["metadata"]["name"]) for pod in found if claim_pod.is_up(pod))


def remove(api: Api, fault: str, pod: str) -> str | None:
    """Delete or evict a pod; return why a disruption budget does not allow that now, if it does not."""
    if fault == "delete":
        api.delete("Pod", pod)
        return None
    try:
        api.evict(pod)
    except ApiError as error:
        if error.status == _TOO_MANY:
            return error.message
        if error.status != 404:
            raise
    return None
