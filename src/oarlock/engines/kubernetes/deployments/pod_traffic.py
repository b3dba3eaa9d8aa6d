"""How many requests each pod has answered: its own counters, read through the API server."""

from __future__ import annotations

import re
from collections.abc import Iterable

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import CONTAINER, Object
from oarlock.engines.kubernetes.deployments.server_parcel import PORT
from oarlock.engines.kubernetes.follow import pod_status

_MOST = 8  # pods that are asked
_LINE = re.compile(r"^oarlock_(requests_total|queue_rows)(?:\{[^\n]*\})? ([0-9.eE+]+)$", re.MULTILINE)


def reports(api: Api, pods: Iterable[Object], run: str) -> dict[str, dict[str, float]]:
    """Return what the pods that answer have counted, by task; a pod that does not say is left out."""
    ready = [pod for pod in pods if pod_status.is_well(pod)]
    found = {}
    for pod in ready[:_MOST]:
        name = pod["metadata"]["name"]
        try:
            text = api.text(
                f"api/v1/namespaces/{api.namespace}/pods/{_scheme(pod)}{name}:{PORT}/proxy/metrics"
            )
        except ApiError:
            continue  # this user may not, or the server wants a token even for this
        counted = counts(text)
        if counted:
            found[name.removeprefix(f"{run}-")] = counted
    return found


def counts(text: str) -> dict[str, float]:
    """Return `step`, the requests so far, and `queue`, the rows that wait, of Prometheus' text."""
    sums: dict[str, float] = {}
    for name, value in _LINE.findall(text):
        sums[name] = sums.get(name, 0.0) + float(value)
    named = {"step": "requests_total", "queue": "queue_rows"}
    return (
        {ours: round(sums.get(theirs, 0.0)) for ours, theirs in named.items()} if "oarlock_" in text else {}
    )


def _scheme(pod: Object) -> str:
    for one in pod["spec"]["containers"]:
        asked = (one.get("readinessProbe") or {}).get("httpGet") or {}
        if one["name"] == CONTAINER and asked.get("scheme") == "HTTPS":
            return "https:"
    return ""
