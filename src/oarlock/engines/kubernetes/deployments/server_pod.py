"""The pod that serves a model: accepted by Pod Security `restricted`, without an API token, and with probes
that tell loading from broken. Pure."""

from __future__ import annotations

import math

from oarlock.engines.kubernetes.api.names import (
    CONTAINER,
    LEAD,
    REVISION,
    ROLE,
    SERVER,
    SHM_VOLUME,
    Object,
)
from oarlock.engines.kubernetes.deployments.server_parcel import PORT, ServerParcel
from oarlock.engines.kubernetes.manifests import pod_template
from oarlock.job.model import SecretUse
from oarlock.run.cluster import TRAINERS
from oarlock.system.pods.places import CODE, ROOT, SECRET, WORK

# A node's proxy and an Ingress controller learn that a pod ends only after it has begun to end. Until then,
# the pod answers as before.
LEAVING = 5  # seconds
_SPARE = 5  # seconds from the last answer to the end of the process
_LOADING = 1800  # seconds for packages, a download and a large model
_LEAVE = f"import time; time.sleep({LEAVING})"


def template(parcel: ServerParcel) -> Object:
    """The pod, with `kubernetes.pod` merged in."""
    settings = parcel.job.kubernetes
    annotations = {**settings.annotations, REVISION: str(parcel.revision)}
    metadata: Object = {"labels": {**parcel.labels, ROLE: SERVER}, "annotations": annotations}
    return {"metadata": metadata, "spec": pod_template.merged(_spec(parcel), settings.pod)}


def _spec(parcel: ServerParcel) -> Object:
    settings = parcel.job.kubernetes
    described: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": LEAVING + parcel.grace + _SPARE,
        "securityContext": pod_template.pod_security(settings.user),
        "containers": [_container(parcel)],
        "volumes": _volumes(parcel),
        "tolerations": [
            *map(pod_template.quick, ("not-ready", "unreachable")),
            *(dict(one) for one in (*settings.tolerations, *parcel.part.tolerations)),
        ],
        "affinity": _affinity(parcel),
        "topologySpreadConstraints": [] if _needs_one_node(parcel) else [_spread(parcel)],
    }
    optional = {
        "nodeSelector": {**settings.node_selector, **parcel.part.node_selector},
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "schedulerName": settings.scheduler,
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
    }
    return {key: value for key, value in {**described, **optional}.items() if value not in ([], {}, None)}


def _needs_one_node(parcel: ServerParcel) -> bool:
    """Whether a claim is mounted that only one node at a time may have."""
    return bool(parcel.claims.volumes) and not parcel.claims.is_shared


def _affinity(parcel: ServerParcel) -> Object:
    """Prefer the node of the training's leader, then of its own pods, if a claim can be on one node only.

    If this were required, no pod could start once that node is lost.
    """
    if not _needs_one_node(parcel):
        return {}
    wished = [_beside(parcel.selector, 50)]
    if parcel.claims.of is not None:
        wished.insert(0, _beside({**parcel.claims.of.labels, LEAD: "true"}, 100))
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wished}}


def _beside(labels: dict[str, str], weight: int) -> Object:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"weight": weight, "podAffinityTerm": term}


def _spread(parcel: ServerParcel) -> Object:
    """Spread the pods over the nodes, so that the loss of one node does not take all of them."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": parcel.selector},
    }


def _container(parcel: ServerParcel) -> Object:
    settings = parcel.job.kubernetes
    described: Object = {
        "name": CONTAINER,
        "image": parcel.image,
        "command": ["python3", f"{CODE}/server.zip"],
        "workingDir": ROOT,
        "env": _variables(parcel),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": pod_template.resources(parcel.job, parcel.part, "none"),
        "volumeMounts": _mounts(parcel),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_probes(parcel),
        "lifecycle": {"preStop": {"exec": {"command": ["python3", "-I", "-S", "-c", _LEAVE]}}},
    }
    if settings.pull_policy:
        described["imagePullPolicy"] = settings.pull_policy
    whole = [{"secretRef": {"name": name}} for name, use in _secrets(parcel) if use.variables]
    return {**described, **({"envFrom": whole} if whole else {})}


def _probes(parcel: ServerParcel) -> Object:
    """Loading is not ready and not broken: until the first version answers, only the startup probe asks.

    A busy server answers these addresses late. It gets no more requests, and is restarted, only after a
    minute without an answer: where all pods are busy, the others could not take its requests.
    """
    ready, alive = (
        {"httpGet": {"path": path, "port": "http", "scheme": parcel.settings.scheme.upper()}}
        for path in ("/readyz", "/healthz")
    )
    return {
        "startupProbe": {**ready, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": _LOADING},
        "readinessProbe": {**ready, "periodSeconds": 2, "timeoutSeconds": 10, "failureThreshold": 6},
        "livenessProbe": {**alive, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
    }


def _variables(parcel: ServerParcel) -> list[Object]:
    cores = max(1, math.floor(parcel.part.cpu))
    plain = {**parcel.env, "OARLOCK_CORES": str(cores), "PYTHONUNBUFFERED": "1"}
    found: list[Object] = [{"name": name, "value": value} for name, value in plain.items()]
    for secret, use in _secrets(parcel):
        found += [
            {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
            for variable, key in use.env.items()
        ]
    return found


def _volumes(parcel: ServerParcel) -> list[Object]:
    settings = parcel.job.kubernetes
    sources = [{"configMap": {"name": name}} for name in parcel.code]
    # A secret belongs to root; the user reads it through the group, if the pod sets one.
    mode = 0o440 if settings.user != "image" else 0o444
    shm = pod_template.shm_of(parcel.job, "none")
    found: list[Object] = [
        {"name": "oarlock-code", "projected": {"sources": sources}},
        {"name": "oarlock-work", "emptyDir": {}},
        {"name": "oarlock-tmp", "emptyDir": {}},
        {"name": SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": str(shm)}},
        *parcel.claims.volumes,
    ]
    if parcel.access:
        source = {"secretName": parcel.access_name, "defaultMode": mode}
        found.append({"name": "oarlock-access", "secret": source})
    for number, (secret, use) in enumerate(_secrets(parcel)):
        if use.path:
            source = {"secretName": secret, "defaultMode": mode}
            found.append({"name": f"oarlock-secret-{number}", "secret": source})
    return found


def _mounts(parcel: ServerParcel) -> list[Object]:
    found: list[Object] = [
        {"name": "oarlock-code", "mountPath": CODE, "readOnly": True},
        {"name": "oarlock-work", "mountPath": WORK},
        {"name": "oarlock-tmp", "mountPath": "/tmp"},
        {"name": SHM_VOLUME, "mountPath": "/dev/shm"},
        *parcel.claims.mounts,
    ]
    if parcel.access:
        found.append({"name": "oarlock-access", "mountPath": SECRET, "readOnly": True})
    found += [
        {"name": f"oarlock-secret-{number}", "mountPath": use.path, "readOnly": True}
        for number, (_, use) in enumerate(_secrets(parcel))
        if use.path
    ]
    return found


def _secrets(parcel: ServerParcel) -> list[tuple[str, SecretUse]]:
    """The Secrets that the training tasks see: those tasks write the model."""
    found = parcel.job.kubernetes.secrets.items()
    return [(name, use) for name, use in found if not use.roles or {*use.roles} & {*TRAINERS}]
