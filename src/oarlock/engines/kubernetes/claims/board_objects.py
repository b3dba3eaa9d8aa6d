"""The objects of a TensorBoard that is deployed in a namespace: Deployment, Service, maybe Ingress. Pure.

They do not carry the run's own label: its NetworkPolicy lets only its tasks connect, and everything with that
label is deleted when a run that has ended is resumed. No Job owns them: they outlive Jobs.
"""

from __future__ import annotations

import re

from oarlock.engines.kubernetes.api.names import (
    BOARD,
    HELPER,
    ID,
    JOB,
    LEAD,
    MANAGED,
    OWNER,
    Identity,
    Object,
)
from oarlock.engines.shared.standing_board import MODULE, PORT

PURPOSE = "tensorboard"  # in names and labels
KINDS = ("Ingress", "Service", "Deployment")
_PACKAGES = "/tmp/packages"
# What pip may need of the job's variables: an index, a proxy, certificates.
_FOR_PIP = re.compile(r"PIP_.*|.*_proxy|SSL_CERT_.*|REQUESTS_CA_BUNDLE", re.IGNORECASE)

# Installs TensorBoard where the image has none, then becomes it. It listens on all addresses of the pod.
_START = f"""
import importlib.util, os, subprocess, sys
if importlib.util.find_spec("tensorboard") is None:
    pip = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--no-cache-dir", "--upgrade", "--target", "{_PACKAGES}", "tensorboard"])
    if done.returncode:
        sys.exit("the image has no TensorBoard, and pip could not install it; --image names one that has")
    os.environ["PYTHONPATH"] = "{_PACKAGES}"
words = ["-m", "{MODULE}", "--logdir", sys.argv[1], "--bind_all", "--port", "{PORT}"]
os.execv(sys.executable, [sys.executable, *words])
"""


def name_of(run: str) -> str:
    """Return the name of all its objects."""
    return f"{run}-{PURPOSE}"


def selector(run: Identity) -> str:
    """Return the selector of the objects of a run's board."""
    return f"{MANAGED}=oarlock,{BOARD}={run.name},{f'{ID}={run.id}' if run.id else f'!{ID}'}"


def of_job(job: str) -> str:
    """Return the selector of the boards of a job's runs: they may mount the same claim."""
    return f"{MANAGED}=oarlock,{JOB}={job},{BOARD}"


def command(folder: str) -> tuple[str, ...]:
    """Return what the pod runs."""
    return ("python3", "-c", _START, folder)


def deployment(run: Identity, job: str, pod: Object, variables: dict[str, str], owner: str) -> Object:
    """Return the Deployment of a pod that mounts the run's claims."""
    spec = {key: value for key, value in pod["spec"].items() if key not in ("restartPolicy", "affinity")}
    container: Object = {
        **spec["containers"][0],
        "ports": [{"name": "http", "containerPort": PORT}],
        # It answers before it has read a file. A package index may be slow.
        "startupProbe": {
            "httpGet": _ANSWERS,
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 300,
        },
        "readinessProbe": {"httpGet": _ANSWERS, "periodSeconds": 10, "timeoutSeconds": 5},
        "livenessProbe": {
            "httpGet": _ANSWERS,
            "periodSeconds": 30,
            "timeoutSeconds": 15,
            "failureThreshold": 5,
        },
    }
    wanted = [{"name": key, "value": value} for key, value in variables.items() if _FOR_PIP.fullmatch(key)]
    container["env"] = [*container.get("env", []), *wanted]
    labels = _labels(run, job)
    return {
        **_head(run, job, "apps/v1", "Deployment", owner),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # a claim that one node may mount cannot be in two pods
            "selector": {"matchLabels": {key: labels[key] for key in labels if key in (BOARD, ID, HELPER)}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {**spec, "affinity": _beside(run), "containers": [container]},
            },
        },
    }


def service(run: Identity, job: str, owner: str) -> Object:
    """Return the Service: the board's address inside the cluster."""
    chosen = {key: value for key, value in _labels(run, job).items() if key in (BOARD, ID, HELPER)}
    port = {"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}
    return {
        **_head(run, job, "v1", "Service", owner),
        "spec": {"type": "ClusterIP", "selector": chosen, "ports": [port]},
    }


def ingress(run: Identity, job: str, host: str, owner: str) -> Object:
    """Return the Ingress, of the cluster's default class: the board's address outside."""
    backend = {"service": {"name": name_of(run.name), "port": {"name": "http"}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {
        **_head(run, job, "networking.k8s.io/v1", "Ingress", owner),
        "spec": {"rules": [{"host": host, "http": {"paths": [path]}}]},
    }


_ANSWERS = {"path": "/", "port": "http"}


def _beside(run: Identity) -> Object:
    """Prefer the leader's node, if there is a leader: others may not be able to mount the claim meanwhile.
    If this were required, the board could not move once the run is over."""
    leader = {"matchLabels": {**run.labels, LEAD: "true"}}
    term = {"labelSelector": leader, "topologyKey": "kubernetes.io/hostname"}
    wished = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wished}}


def _labels(run: Identity, job: str) -> dict[str, str]:
    own = {MANAGED: "oarlock", JOB: job, BOARD: run.name, HELPER: PURPOSE}
    return {**own, **({ID: run.id} if run.id else {})}


def _head(run: Identity, job: str, version: str, kind: str, owner: str) -> Object:
    metadata = {"name": name_of(run.name), "labels": _labels(run, job), "annotations": {OWNER: owner}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
