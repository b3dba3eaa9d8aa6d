"""Remove pods of a run on purpose, as a user or a drain would (`oarlock chaos`)."""

from __future__ import annotations

from contextlib import closing

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.claims import claim_pod
from oarlock.engines.kubernetes.kubernetes_engine import api_of, told
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.records.runs import RunFolder

_TOO_MANY = 429  # a disruption budget forbids it


def pods(run: RunFolder) -> list[str]:
    """The names of the pods that train now."""
    with told(), closing(api_of(run)) as api:
        found = api.all("Pod", identity.of(run).members)
    return sorted(str(pod["metadata"]["name"]) for pod in found if claim_pod.is_up(pod))


def disturb(run: RunFolder, kind: str, pod: str) -> str | None:
    """Delete or evict a pod; returns why a disruption budget forbids it, or None."""
    with told(), closing(api_of(run)) as api:
        if kind == "delete":
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
