"""The objects of a pod that scores checkpoints of a run: made from the run's own pods. Pure.

It has what the run's evaluator has, or else its leader: image, resources, user, secrets and volumes; with the
leader's claims, and without the run's token. It waits until a client runs the evaluator in it.
"""

from __future__ import annotations

import base64
from typing import Any

from oarlock.agent.protocol.pod_paths import SEAT_OFFSET, SECRET
from oarlock.engines.kubernetes.api.names import CONTAINER, HELPER, JOB, STORE_VOLUME, Identity, Object

PURPOSE = "evaluate"
# Waits until it is deleted. The first process of a pod has no default signal handlers.
_WAITS = "from signal import *; pthread_sigmask(SIG_BLOCK, {SIGTERM}); sigwait({SIGTERM})"
_CODE, _GPU = "oarlock-code", "nvidia.com/gpu"
_OF_AGENTS = ("OARLOCK_SEAT_ROLE", SEAT_OFFSET, "OARLOCK_COORDINATOR")


def pod(name: str, run: Identity, job: str, evaluator: Object | None, leader: Object, agent: str) -> Object:
    """Return the pod, from the specs of the run's pods; `agent` is the ConfigMap with what runs in it."""
    spec = evaluator or leader
    container = _container(spec, leader)
    volumes = _joined(spec["volumes"], leader["volumes"])
    if evaluator is None:  # an evaluator has no GPU unless its role asks for one
        container["resources"] = _without_gpu(container["resources"])
    kept = {key: value for key, value in spec.items() if key != "topologySpreadConstraints"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {**run.labels, JOB: job, HELPER: PURPOSE}},
        "spec": {
            **kept,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
            "volumes": [_with_agent(one, agent) for one in volumes if one["name"] != "oarlock-secret"],
        },
    }


def config_map(name: str, run: Identity, job: str, agent: bytes, spec: str) -> Object:
    """Return the ConfigMap with the agent and the spec: those of the run are deleted some time after it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {**run.labels, JOB: job}},
        "binaryData": {"agent.zip": base64.b64encode(agent).decode()},
        "data": {"spec.json": spec},
    }


def _container(spec: Object, leader: Object) -> Object:
    own, theirs = _main(spec), _main(leader)
    mounts = {one["mountPath"]: one for one in own["volumeMounts"] if one["mountPath"] != SECRET}
    shared = {one["name"] for one in leader["volumes"] if "persistentVolumeClaim" in one}
    for mount in theirs["volumeMounts"]:
        if mount["name"] in shared:
            mounts.setdefault(mount["mountPath"], mount)
    return {
        **{key: value for key, value in own.items() if key not in ("livenessProbe", "readinessProbe")},
        "command": ["python3", "-I", "-c", _WAITS],
        "env": [one for one in own.get("env", []) if one["name"] not in _OF_AGENTS],
        "volumeMounts": list(mounts.values()),
    }


def _main(spec: Object) -> Object:
    found: Object = next(one for one in spec["containers"] if one["name"] == CONTAINER)
    return found


def _joined(own: list[Object], leaders: list[Object]) -> list[Object]:
    """The pod's volumes, with the leader's claims: checkpoints and data are there."""
    claims = {one["name"]: one for one in leaders if "persistentVolumeClaim" in one}
    names = {one["name"] for one in own}
    kept = [claims.get(one["name"], one) if one["name"] == STORE_VOLUME else one for one in own]
    return [*kept, *(one for name, one in claims.items() if name not in names)]


def _with_agent(volume: Object, agent: str) -> Object:
    """The agent and the spec come from here, the program from what was sent with the run."""
    if volume["name"] != _CODE:
        return volume
    sources: list[Any] = [{"configMap": {"name": agent}}]
    for number, source in enumerate(volume["projected"]["sources"]):
        part = f"program.tar.gz.{number:02}"
        wanted = {"name": source["configMap"]["name"], "items": [{"key": part, "path": part}]}
        sources.append({"configMap": {**wanted, "optional": True}})
    return {"name": _CODE, "projected": {"sources": sources}}


def _without_gpu(resources: Object) -> Object:
    return {
        kind: {key: one for key, one in amounts.items() if key != _GPU} for kind, amounts in resources.items()
    }
