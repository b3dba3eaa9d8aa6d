"""The Job of pods that predict: an Indexed Job of model servers, without address or probes. Pure.

Only its own client reaches them: they listen on the pod's loopback, where a forwarded port leads. The client
sees through the same port whether a model is loaded.
"""

from __future__ import annotations

from dataclasses import replace

from oarlock.engines.kubernetes.api.names import HELPER, MANAGED, Object
from oarlock.engines.kubernetes.deployments import server_pod
from oarlock.engines.kubernetes.deployments.server_parcel import ServerParcel

PURPOSE = "predict"
_FAILURES = 1_000_000  # per index: the client counts what is lost, not Kubernetes
# To a Job, a pod that ends with 0 is done, and is never replaced.
_STOPPED = 143  # as after SIGTERM


def own(parcel: ServerParcel) -> ServerParcel:
    """The parcel, for pods that no other client reaches and whose version stays the same."""
    settings = replace(parcel.settings, host="127.0.0.1", stopped=_STOPPED, follows=False)
    return replace(parcel, settings=settings)


def pod(parcel: ServerParcel) -> Object:
    """One pod, for a dry run."""
    metadata = {**_template(parcel)["metadata"], "generateName": f"{parcel.run}-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _template(parcel)["spec"]}


def job(parcel: ServerParcel, workers: int) -> Object:
    """The Job. It does not have the label of a run, so that no verb acts on it. Its pods do."""
    labels = {**parcel.job.kubernetes.labels, MANAGED: "oarlock", HELPER: PURPOSE}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": parcel.run, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": workers,
            "parallelism": workers,
            "backoffLimitPerIndex": _FAILURES,
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": _template(parcel),
        },
    }


def _template(parcel: ServerParcel) -> Object:
    found = server_pod.template(parcel)
    labels = {**found["metadata"]["labels"], HELPER: PURPOSE}
    dropped = ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "ports")
    first, *others = found["spec"]["containers"]
    container = {key: value for key, value in first.items() if key not in dropped}
    spec = {**found["spec"], "restartPolicy": "OnFailure", "containers": [container, *others]}
    return {"metadata": {**found["metadata"], "labels": labels}, "spec": spec}
