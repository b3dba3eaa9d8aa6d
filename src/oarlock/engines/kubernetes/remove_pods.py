"""Take pods away from a run on purpose, as a user or a drained node would (`oarlock chaos`)."""

from __future__ import annotations

from contextlib import closing

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.claims import claim_pod
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.kubernetes.lifecycle.connect import api_of, explained
from oarlock.records.run_folder import RunFolder

_TOO_MANY = 429  # the status with which a disruption budget refuses


def pods(run: RunFolder) -> list[str]:
    """Return the names of the pods that train right now."""
    with explained(), closing(api_of(run)) as api:
        found = api.all("Pod", identity.of(run).members)
    return sorted(str(pod["metadata"]["name"]) for pod in found if claim_pod.is_up(pod))


def remove(run: RunFolder, fault: str, pod: str) -> str | None:
    """Delete or evict a pod; return why a disruption budget does not allow that now, if it does not."""
    with explained(), closing(api_of(run)) as api:
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
