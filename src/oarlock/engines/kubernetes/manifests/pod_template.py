"""The pod of one group: accepted by Pod Security `restricted`, without an API token, and without the image's
entrypoint. Pure."""

from __future__ import annotations

import math
from typing import Any

from oarlock.agent.protocol.pod_paths import CODE, ROOT, SEAT_OFFSET, SECRET, STORE, WORK
from oarlock.engines.kubernetes.api.names import (
    BY_INGEST,
    CONTAINER,
    HELPER,
    JOB,
    LEAD,
    ROLE,
    RUN,
    SHM_VOLUME,
    STORE_VOLUME,
    Object,
)
from oarlock.engines.kubernetes.manifests.groups import Group
from oarlock.engines.kubernetes.manifests.payload import Parcel
from oarlock.job.model import Job, Role
from oarlock.quantities import Size

# No proxy in the pod: it would run after the task has ended, and need not see training traffic.
_ALONE = {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}
_LOST = 1  # seconds from a node's loss to its pods' eviction; a stock cluster would wait 300
_SHM = Size(64 * 1024**2)  # the default of container engines
_SHM_TORCH = Size(1024**3)  # its data loaders pass batches there


def template(parcel: Parcel, group: Group, coordinator: str | None) -> Object:
    """A group's pod with `kubernetes.pod` merged in; `coordinator` is the leader's address, for followers."""
    settings = parcel.job.kubernetes
    labels = {**parcel.labels, ROLE: group.role, **({LEAD: "true"} if group.leads else {})}
    notes = {**_ALONE, **({BY_INGEST: " ".join(group.by_ingest)} if group.by_ingest else {})}
    metadata: Object = {"labels": labels, "annotations": {**notes, **settings.annotations}}
    return {"metadata": metadata, "spec": merged(_spec(parcel, group, coordinator), settings.pod)}


def claim_name(job: Job) -> str | None:
    """The claim that the leader mounts; None if the job has none."""
    claim = job.kubernetes.claim
    return None if claim is None else claim.name or job.name


def volume_claim(job: Job, volume: str) -> str:
    """The claim behind one of `kubernetes.volumes`: the one that it names, or one of the job's own."""
    return job.kubernetes.volumes[volume].claim or f"{job.name}-{volume}"


def shm_of(job: Job, framework: str) -> Size:
    """The limit of /dev/shm."""
    return job.kubernetes.shm or (_SHM_TORCH if framework == "torch" else _SHM)


def resources(job: Job, part: Role, framework: str) -> Object:
    """Memory is a limit that includes shared memory; CPU is only a request: a limit would slow down imports
    for nothing."""
    memory = f"{math.ceil((part.memory.bytes + shm_of(job, framework).bytes) / 1024**2)}Mi"
    requests = {"cpu": f"{math.ceil(part.cpu * 1000)}m", "memory": memory}
    limits = {"memory": memory}
    if part.gpu:
        limits["nvidia.com/gpu"] = str(part.gpu)
    return {"requests": requests, "limits": limits}


def _spec(parcel: Parcel, group: Group, coordinator: str | None) -> Object:
    job, settings = parcel.job, parcel.job.kubernetes
    described: Object = {
        "restartPolicy": "OnFailure",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(job.limits.grace.seconds) + 5,
        "securityContext": pod_security(settings.user),
        "containers": [_container(parcel, group, coordinator)],
        "volumes": _volumes(parcel, group),
        "tolerations": [
            *map(quick, ("not-ready", "unreachable")),
            *(dict(one) for one in (*settings.tolerations, *group.part.tolerations)),
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {RUN: parcel.run}},
            }
        ],
    }
    optional = {
        "affinity": _beside_board(job)
        if group.leads and settings.claim and not settings.claim.shared
        else {},
        "nodeSelector": {**settings.node_selector, **group.part.node_selector},
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "schedulerName": settings.scheduler,
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
    }
    return {**described, **{key: value for key, value in optional.items() if value}}


def _beside_board(job: Job) -> Object:
    """Prefer the node with a TensorBoard of the job: only one node at a time can mount most claims."""
    boards = {"matchLabels": {JOB: job.name, HELPER: "tensorboard"}}
    term = {"labelSelector": boards, "topologyKey": "kubernetes.io/hostname"}
    wished = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wished}}


def _container(parcel: Parcel, group: Group, coordinator: str | None) -> Object:
    settings = parcel.job.kubernetes
    described: Object = {
        "name": CONTAINER,
        "image": parcel.images[group.name],
        "command": ["python3", f"{CODE}/agent.zip"],
        "workingDir": ROOT,
        "env": _variables(parcel, group, coordinator),
        "resources": resources(parcel.job, group.part, parcel.framework),
        "volumeMounts": _mounts(parcel, group),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if settings.pull_policy:
        described["imagePullPolicy"] = settings.pull_policy
    whole = [
        {"secretRef": {"name": name}}
        for name, use in settings.secrets.items()
        if use.variables and _concerns(use.roles, group)
    ]
    return {**described, **({"envFrom": whole} if whole else {})}


def _variables(parcel: Parcel, group: Group, coordinator: str | None) -> list[Object]:
    cores = max(1, round(group.part.cpu))
    plain = {
        "OARLOCK_SEAT_ROLE": group.role,
        SEAT_OFFSET: str(group.offset),
        "OARLOCK_CORES": str(cores),
        "PYTHONUNBUFFERED": "1",
        **({"OARLOCK_COORDINATOR": coordinator} if coordinator else {}),
    }
    found: list[Object] = [{"name": name, "value": value} for name, value in plain.items()]
    found.append({"name": "OARLOCK_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    for secret, use in parcel.job.kubernetes.secrets.items():
        if _concerns(use.roles, group):
            found += [
                {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
                for variable, key in use.env.items()
            ]
    return found


def _volumes(parcel: Parcel, group: Group) -> list[Object]:
    job, settings = parcel.job, parcel.job.kubernetes
    sources = [{"configMap": {"name": name}} for name in parcel.code]
    # A secret belongs to root; the user reads it through the group, if the pod sets one.
    mode = 0o440 if settings.user != "image" else 0o444
    found: list[Object] = [
        {"name": "oarlock-code", "projected": {"sources": sources}},
        {"name": "oarlock-secret", "secret": {"secretName": parcel.run, "defaultMode": mode}},
        {"name": "oarlock-work", "emptyDir": {}},
        {"name": "oarlock-tmp", "emptyDir": {}},
        {
            "name": SHM_VOLUME,
            "emptyDir": {"medium": "Memory", "sizeLimit": str(shm_of(job, parcel.framework))},
        },
        {"name": STORE_VOLUME, **_store(parcel, group)},
    ]
    for name, volume in settings.volumes.items():
        if not _concerns(volume.roles, group):
            continue
        if volume.empty:
            limit = {"sizeLimit": str(volume.size)} if volume.size else {}
            found.append({"name": name, "emptyDir": limit})
        else:
            source = {"claimName": volume_claim(job, name), "readOnly": volume.read_only}
            found.append({"name": name, "persistentVolumeClaim": source})
    for number, (secret, use) in enumerate(settings.secrets.items()):
        if use.path and _concerns(use.roles, group):
            source = {"secretName": secret, "defaultMode": mode}
            found.append({"name": _secret_volume(number), "secret": source})
    return found


def _secret_volume(number: int) -> str:
    """The name of a secret's volume. A secret's own name may have dots, or be the name of another volume."""
    return f"oarlock-secret-{number}"


def _store(parcel: Parcel, group: Group) -> Object:
    claim = parcel.job.kubernetes.claim
    if claim is None or not (group.leads or claim.shared):
        return {"emptyDir": {}}
    return {"persistentVolumeClaim": {"claimName": claim_name(parcel.job)}}


def _mounts(parcel: Parcel, group: Group) -> list[Object]:
    settings = parcel.job.kubernetes
    found: list[Object] = [
        {"name": "oarlock-code", "mountPath": CODE, "readOnly": True},
        {"name": "oarlock-secret", "mountPath": SECRET, "readOnly": True},
        {"name": "oarlock-work", "mountPath": WORK},
        {"name": STORE_VOLUME, "mountPath": STORE},
        {"name": "oarlock-tmp", "mountPath": "/tmp"},
        {"name": SHM_VOLUME, "mountPath": "/dev/shm"},
    ]
    found += [
        {"name": name, "mountPath": volume.path, "readOnly": volume.read_only}
        for name, volume in settings.volumes.items()
        if _concerns(volume.roles, group)
    ]
    found += [
        {"name": _secret_volume(number), "mountPath": use.path, "readOnly": True}
        for number, use in enumerate(settings.secrets.values())
        if use.path and _concerns(use.roles, group)
    ]
    return found


def _concerns(roles: tuple[str, ...], group: Group) -> bool:
    return not roles or group.role in roles


def pod_security(user: int | str) -> Object:
    """`image` leaves the user to the image or the cluster (OpenShift gives each namespace its own range)."""
    described: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if isinstance(user, int):
        described |= {
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    return described


def quick(condition: str) -> Object:
    """The toleration of a lost node, which is short: its pods are soon replaced elsewhere."""
    return {
        "key": f"node.kubernetes.io/{condition}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _LOST,
    }


def merged(ours: Any, theirs: Any) -> Any:
    """Merge the user's part into ours: mappings by key, lists of named items by name; lists of other mappings
    are appended, everything else is replaced."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {
            **ours,
            **{key: merged(ours[key], one) if key in ours else one for key, one in theirs.items()},
        }
    if isinstance(ours, list) and isinstance(theirs, list) and all(isinstance(one, dict) for one in ours):
        named = {one["name"]: one for one in theirs if isinstance(one, dict) and "name" in one}
        known = [one.get("name") for one in ours]
        changed = [
            merged(one, named[name]) if name in named else one for one, name in zip(ours, known, strict=True)
        ]
        rest = [one for one in theirs if not (isinstance(one, dict) and one.get("name") in known)]
        return changed + rest
    return theirs
