"""The objects of a served model, built from its parcel and nothing else. Pure.

ConfigMaps <name>-code-<digest>-N   the server, its settings, a model that is handed over; 1 MiB each
Secret <name>-access-<revision>     the bearer token and the certificate, if there are any
Service <name>                      its address inside the cluster
NetworkPolicy <name>                pods of this namespace reach its port; others only if it has a host
Deployment <name>                   the pods; it owns all the rest
HorizontalPodAutoscaler <name>      for replicas: min..max
PodDisruptionBudget <name>          a drained node takes one pod at a time
Ingress or HTTPRoute <name>         for a host

An update creates the ConfigMaps and the Secret of its own revision: pods of both run for a while, and the old
ones may restart.
"""

from __future__ import annotations

from oarlock.engines.kubernetes.api.names import COMPLETE, OWNER, Object
from oarlock.engines.kubernetes.deployments import server_pod
from oarlock.engines.kubernetes.deployments.server_parcel import MODEL_PARTS, PORT, ServerParcel, text

# Kinds that change with an update, besides the Deployment; and kinds that are new with each revision.
STANDING = (
    "Service",
    "NetworkPolicy",
    "HorizontalPodAutoscaler",
    "PodDisruptionBudget",
    "Ingress",
    "HTTPRoute",
)
OWN = ("ConfigMap", "Secret")
_BUSY = 70  # percent of the requested CPU, above which the autoscaler adds pods
_PROGRESS = 3600  # seconds; `oarlock serve` waits less, and says why


def config_maps(parcel: ServerParcel) -> list[Object]:
    """What the pods unpack; the first has the server and its settings."""
    found = []
    for number, (name, piece) in enumerate(parcel.code.items()):
        content: Object = {"binaryData": {f"{MODEL_PARTS}.{number:02}": text(piece)} if piece else {}}
        if number == 0:
            content["binaryData"]["server.zip"] = text(parcel.archive)
            content["data"] = parcel.texts
        found.append({**_head(parcel, "v1", "ConfigMap", name), **content})
    return found


def access(parcel: ServerParcel) -> list[Object]:
    """The Secret with token and certificate, if the server has any."""
    if not parcel.access:
        return []
    data = {name: text(content) for name, content in parcel.access.items()}
    return [{**_head(parcel, "v1", "Secret", parcel.access_name), "data": data}]


def deployment(parcel: ServerParcel, replicas: int | None) -> Object:
    """The pods. `replicas`: None leaves the number to the autoscaler."""
    described: Object = {
        "selector": {"matchLabels": parcel.selector},
        # A pod goes only when another answers in its place.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "progressDeadlineSeconds": _PROGRESS,
        "revisionHistoryLimit": 0,  # older ones need ConfigMaps that are gone
        "template": server_pod.template(parcel),
    }
    if replicas is not None:
        described["replicas"] = replicas
    return {**_head(parcel, "apps/v1", "Deployment"), "spec": described}


def standing(parcel: ServerParcel) -> list[Object]:
    """Everything beside the pods that stays with an update."""
    found = [service(parcel), network_policy(parcel), budget(parcel)]
    if parcel.replicas.elastic:
        found.append(autoscaler(parcel))
    if parcel.reach.gateway:
        found.append(route(parcel))
    elif parcel.reach.host:
        found.append(ingress(parcel))
    return found


def service(parcel: ServerParcel) -> Object:
    """The Service: the server's address inside the cluster."""
    port = {"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}
    return {
        **_head(parcel, "v1", "Service"),
        "spec": {"type": "ClusterIP", "selector": parcel.selector, "ports": [port]},
    }


def network_policy(parcel: ServerParcel) -> Object:
    """Which clients may connect: pods of the namespace, or any if a host leads to it from outside."""
    rule: Object = {"ports": [{"port": PORT, "protocol": "TCP"}]}
    if not parcel.reach.is_open:
        rule["from"] = [{"podSelector": {}}]
    return {
        **_head(parcel, "networking.k8s.io/v1", "NetworkPolicy"),
        "spec": {
            "podSelector": {"matchLabels": parcel.selector},
            "policyTypes": ["Ingress"],
            "ingress": [rule],
        },
    }


def autoscaler(parcel: ServerParcel) -> Object:
    """Give it as many pods as the load needs, by their CPU; the cluster needs a metrics server for that."""
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": _BUSY}},
    }
    return {
        **_head(parcel, "autoscaling/v2", "HorizontalPodAutoscaler"),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": parcel.run},
            "minReplicas": parcel.replicas.min,
            "maxReplicas": parcel.replicas.max,
            "metrics": [metric],
        },
    }


def budget(parcel: ServerParcel) -> Object:
    """A drained node removes the next pod once the one before it answers elsewhere. A single pod may go, and
    others may be added later. A pod that is not ready may always go: it could block a drain forever."""
    return {
        **_head(parcel, "policy/v1", "PodDisruptionBudget"),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": parcel.selector},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def ingress(parcel: ServerParcel) -> Object:
    """The Ingress, of the cluster's default class: the server's address outside."""
    backend = {"service": {"name": parcel.run, "port": {"name": "http"}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    described: Object = {"rules": [{"host": parcel.reach.host, "http": {"paths": [path]}}]}
    if parcel.reach.tls_secret:
        described["tls"] = [{"hosts": [parcel.reach.host], "secretName": parcel.reach.tls_secret}]
    return {**_head(parcel, "networking.k8s.io/v1", "Ingress"), "spec": described}


def route(parcel: ServerParcel) -> Object:
    """The HTTPRoute, of a Gateway of the cluster: the server's address outside."""
    namespace, _, name = parcel.reach.gateway.rpartition("/")
    parent = {"name": name, **({"namespace": namespace} if namespace else {})}
    described: Object = {
        "parentRefs": [parent],
        "rules": [{"backendRefs": [{"name": parcel.run, "port": PORT}]}],
    }
    if parcel.reach.host:
        described["hostnames"] = [parcel.reach.host]
    return {**_head(parcel, "gateway.networking.k8s.io/v1", "HTTPRoute"), "spec": described}


def owned(manifest: Object, owner: Object) -> Object:
    """The manifest, owned by the Deployment and deleted with it. Not blocking: `edit` may not allow that."""
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def standalone(parcel: ServerParcel) -> list[Object]:
    """All objects for `kubectl apply`, complete as they are."""
    made = deployment(parcel, None if parcel.replicas.elastic else parcel.replicas.min)
    made["metadata"].setdefault("annotations", {})[COMPLETE] = "true"
    return [*config_maps(parcel), *access(parcel), *standing(parcel), made]


def _head(parcel: ServerParcel, version: str, kind: str, name: str = "") -> Object:
    metadata: Object = {"name": name or parcel.run, "labels": dict(parcel.labels)}
    annotations = {**parcel.job.kubernetes.annotations, **({OWNER: parcel.owner} if parcel.owner else {})}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
