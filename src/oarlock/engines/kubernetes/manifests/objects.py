"""The manifests of a run's objects, built from the job and nothing else. Pure.

ConfigMaps <run>-code-N    the agent, the program's folder and the spec, 1 MiB each
Secret <run>               the token
Service <run>              the coordinator's address
NetworkPolicy <run>        only this run's pods reach its ports
Job <run>-<group>          one per group of equal machines, Indexed; `lead` owns all the rest
claims                     the leader's, named after the job; volumes that the job asks for. Not owned.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from oarlock.agent.protocol.pod_paths import PORT
from oarlock.engines.kubernetes.api.names import ID, JOB, LEAD, MANAGED, OWNER, RUN, Object
from oarlock.engines.kubernetes.manifests import pod_template
from oarlock.engines.kubernetes.manifests.groups import Group
from oarlock.engines.kubernetes.manifests.payload import Parcel
from oarlock.job.cluster_names import QUEUE
from oarlock.job.model import Job

_FAILURES = 1_000_000  # per index: the leader counts restarts, not Kubernetes


def config_maps(parcel: Parcel) -> list[Object]:
    """The ConfigMaps; the first has the agent, the spec and the beginning of the program."""
    found = []
    for number, (name, piece) in enumerate(parcel.code.items()):
        content: Object = {"binaryData": {f"program.tar.gz.{number:02}": _text(piece)}}
        if number == 0:
            content["binaryData"]["agent.zip"] = _text(parcel.agent)
            content["data"] = {"spec.json": parcel.spec, "job.yaml": parcel.written}
        found.append({**_head(parcel, "v1", "ConfigMap", name), **content})
    return found


def secret(parcel: Parcel) -> Object:
    """The token by which the agents of the run know each other."""
    return {**_head(parcel, "v1", "Secret", parcel.run), "data": {"token": _text(parcel.token.encode())}}


def service(parcel: Parcel) -> Object:
    """The leader's Service. Without a readiness probe a leader is reachable as soon as it listens."""
    port = {"name": "coordinator", "port": PORT, "targetPort": PORT, "protocol": "TCP"}
    selector = {RUN: parcel.run, LEAD: "true"}
    return {
        **_head(parcel, "v1", "Service", parcel.run),
        "spec": {"type": "ClusterIP", "selector": selector, "ports": [port]},
    }


def network_policy(parcel: Parcel) -> Object:
    """Only the run's own pods may connect: a TensorFlow server executes whatever it receives."""
    ours = {"matchLabels": {RUN: parcel.run}}
    return {
        **_head(parcel, "networking.k8s.io/v1", "NetworkPolicy", parcel.run),
        "spec": {
            "podSelector": ours,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": ours}]}],
        },
    }


def claims(parcel: Parcel) -> list[Object]:
    """The claims to create. They outlive the run, so they have the job's labels, not the run's."""
    settings = parcel.job.kubernetes
    found = []
    if settings.claim is not None and not settings.claim.existing:
        found.append(_claim(parcel, pod_template.claim_name(parcel.job) or "", settings.claim))
    for name, volume in settings.volumes.items():
        if volume.size is not None and not volume.empty:
            found.append(_claim(parcel, pod_template.volume_claim(parcel.job, name), volume))
    return found


def not_ours(claim: Object, parcel: Parcel) -> str | None:
    """Why an existing claim with the name of one to create must not be mounted; None if it may."""
    metadata = claim["metadata"]
    labels, owner = metadata.get("labels") or {}, (metadata.get("annotations") or {}).get(OWNER)
    if labels.get(MANAGED) != "oarlock":
        whose = "not Oarlock's"
    elif labels.get(JOB) != parcel.job.name:
        whose = f"that of job {labels.get(JOB)}"
    elif owner is not None and parcel.owner and owner != parcel.owner:
        whose = f"{owner}'s, and you are {parcel.owner}"
    else:
        return None
    return f"claim {metadata['name']} exists and is {whose}; {_ways_out(metadata['name'], parcel.job)}"


def _ways_out(claim: str, job: Job) -> str:
    """The advice: how to get a claim of its own, and how to use this one on purpose."""
    if claim == pod_template.claim_name(job):
        other, same = "kubernetes.claim.name=OTHER", f"kubernetes.claim={claim}"
        return f"give the job another name, or --set {other}; --set {same} uses it anyway"
    volume = next(name for name in job.kubernetes.volumes if pod_template.volume_claim(job, name) == claim)
    return f"give the job another name; kubernetes.volumes.{volume}.claim: {claim} uses it anyway"


def job(parcel: Parcel, group: Group, *, coordinator: str | None = None, suspend: bool = True) -> Object:
    """One group's Job. `coordinator` is the leader's address; the leader itself needs none."""
    settings = parcel.job.kubernetes
    limits = parcel.job.limits
    head = _head(parcel, "batch/v1", "Job", parcel.name_of(group))
    if group.leads:
        head["metadata"]["labels"][LEAD] = "true"
    if settings.queue:
        head["metadata"]["labels"][QUEUE] = settings.queue
    described: Object = {
        "completionMode": "Indexed",
        "completions": max(1, group.count),  # a Job without completions is complete, and can never grow
        "parallelism": group.count,
        "backoffLimitPerIndex": _FAILURES,
        "podReplacementPolicy": "TerminatingOrFailed",
        "template": pod_template.template(parcel, group, coordinator),
    }
    if suspend:
        described["suspend"] = True
    if limits.runtime is not None:
        # The leader keeps the limit itself and reports it; this is for a leader that cannot.
        spare = limits.grace.seconds + limits.rendezvous.seconds
        described["activeDeadlineSeconds"] = int(limits.runtime.seconds + spare)
    if group.leads or not suspend:  # the others are deleted with their owner, if they have one
        described["ttlSecondsAfterFinished"] = int(settings.ttl.seconds)
    return {**head, "spec": described}


def owned(manifest: Object, owner: Object) -> Object:
    """The manifest, owned by the leading Job. Not blocking: the role `edit` may not allow that."""
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def standalone(parcel: Parcel) -> list[Object]:
    """All objects for `kubectl apply`, in an order that starts at once: the Service exists before a pod looks
    up its name."""
    address = f"{parcel.run}:{PORT}"
    return [
        *claims(parcel),
        *config_maps(parcel),
        secret(parcel),
        service(parcel),
        network_policy(parcel),
        job(parcel, parcel.leader, suspend=False),
        *(job(parcel, group, coordinator=address, suspend=False) for group in parcel.groups[1:]),
    ]


def _head(parcel: Parcel, version: str, kind: str, name: str) -> Object:
    metadata: Object = {"name": name, "labels": dict(parcel.labels)}
    annotations = {**parcel.job.kubernetes.annotations, **({OWNER: parcel.owner} if parcel.owner else {})}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _claim(parcel: Parcel, name: str, asked: Any) -> Object:
    described: Object = {
        "accessModes": [asked.access],
        "resources": {"requests": {"storage": str(asked.size)}},
    }
    if asked.storage_class is not None:
        described["storageClassName"] = asked.storage_class
    head = _head(parcel, "v1", "PersistentVolumeClaim", name)
    for name in (RUN, ID):
        head["metadata"]["labels"].pop(name, None)
    return {**head, "spec": described}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def names(manifests: Iterable[Object]) -> list[str]:
    """The objects as `kubectl` takes them: kind/name."""
    return [f"{manifest['kind']}/{manifest['metadata']['name']}" for manifest in manifests]
