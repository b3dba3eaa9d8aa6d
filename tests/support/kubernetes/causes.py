"""Provoking trouble for real: namespaces with rules of their own, runs that cannot run, and waiting for the
line that tells."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api import names
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.diagnose import Problem
from oarlock.engines.kubernetes.lifecycle import submit
from oarlock.engines.kubernetes.manifests import packing
from oarlock.job import job_file
from tests.support.clusters import Cluster
from tests.support.kubernetes.driving import Named
from tests.support.kubernetes.small import SMALL_SETTINGS
from tests.support.waiting import eventually

Object = dict[str, Any]

TAG = "oarlock.dev/test"
LEAST = [*SMALL_SETTINGS, "kubernetes.claim=none", "limits.grace=1s"]
RULES = "rbac.authorization.k8s.io"
PROGRAM = """
import signal, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "hog" in sys.argv:
    hoard = [bytearray(50_000_000) for _ in range(20)]
time.sleep(300)
"""


def start(api: Api, folder: Path, run: str, *sets: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(PROGRAM)
    job = job_file.load("train.py", sets=[*LEAST, *sets], cwd=folder)
    submit.submit(api, packing.pack(job, run))
    return run


def told(api: Api, run: str, words: str = "", seconds: float = 300) -> Problem:
    """The most important problem of the run, once there is one (that has these words)."""
    seen: list[Problem] = []

    def ask() -> Problem | None:
        seen[:] = diagnose.find_problems(api, Named(run))
        return seen[0] if seen and words in seen[0].what else None

    return eventually(ask, f"problem of {run} with {words!r}", seconds, evidence=lambda: f"seen: {seen}")


@contextmanager
def namespace(admin: Api, api: Api, *rules: Object) -> Iterator[Api]:
    """One of our own, `restricted`, in which the user has the role edit, with rules such as a quota."""
    name = f"diag-{secrets.token_hex(3)}"
    enforced = {TAG: "diagnose", "pod-security.kubernetes.io/enforce": "restricted"}
    send(admin, "api/v1/namespaces", {"metadata": {"name": name, "labels": enforced}})
    here = f"namespaces/{name}"
    binding = {
        "metadata": {"name": "editor"},
        "subjects": [{"kind": "User", "name": "editor", "apiGroup": RULES}],
        "roleRef": {"kind": "ClusterRole", "name": "edit", "apiGroup": RULES},
    }
    send(admin, f"apis/{RULES}/v1/{here}/rolebindings", binding)
    # What every namespace is given is to be there before quotas count it.
    for given in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        _until_there(admin, f"api/v1/{here}/{given}")
    there = Api(namespace=name)
    eventually(lambda: there.review("create", "batch", "jobs"), f"rights in {name}")
    for rule in rules:
        send(admin, f"api/v1/{here}/{rule['kind'].lower()}s", rule)
    for rule in rules:
        if rule["kind"] == "ResourceQuota":  # nothing is counted before
            _until_counted(admin, f"api/v1/{here}/resourcequotas/{rule['metadata']['name']}")
    try:
        yield there
    finally:
        # Its Jobs first: the pods of one that still wants them would keep the namespace for ever.
        there.delete_all("Job", "")
        there.close()
        admin.http.delete(f"api/v1/namespaces/{name}")


@contextmanager
def users_namespace(cluster: Cluster, admin: Api, api: Api) -> Iterator[Api]:
    """The same for a fixture that outlives a test: only during tests does KUBECONFIG name the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(cluster.user))
        with namespace(admin, api) as there:
            yield there


@contextmanager
def broken(cluster: Cluster, how: list[str], back: list[str]) -> Iterator[None]:
    if cluster.script is None:
        pytest.skip("only our own cluster is broken on purpose")
    with ExitStack() as stack:
        stack.callback(cluster.do, *back)
        cluster.do(*how)
        yield


@contextmanager
def thing(admin: Api, path: str, manifest: Object) -> Iterator[None]:
    """Something that belongs to no namespace."""
    send(admin, path, manifest)
    try:
        yield
    finally:
        admin.http.delete(f"{path}/{manifest['metadata']['name']}")


def send(admin: Api, path: str, manifest: Object) -> None:
    answer = admin.http.post(path, json=manifest)
    assert answer.is_success, answer.text


def _until_there(admin: Api, path: str) -> None:
    eventually(lambda: admin.http.get(path).is_success, path, 90)


def _until_counted(admin: Api, path: str) -> None:
    eventually(lambda: admin.http.get(path).json()["status"].get("hard"), f"count by {path}")


def quota(**hard: str) -> Object:
    """Names with `__` for a dot and `_of_` for a slash, as Python allows them."""
    named = {key.replace("__", ".").replace("_of_", "/"): value for key, value in hard.items()}
    return {"kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": named}}


def limit_range(**limits: Any) -> Object:
    return {
        "kind": "LimitRange",
        "metadata": {"name": "small"},
        "spec": {"limits": [{"type": "Container", **limits}]},
    }


def plain_pod(run: str, **spec: Any) -> Object:
    """A pod that Pod Security allows, for what no job file can bring about."""
    container = {
        "name": "main",
        "image": "busybox",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "600"],  # longer than any test
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **spec.pop("container", {}),
    }
    secure = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": run, "labels": {**names.Identity(run).labels, names.ROLE: "worker"}},
        "spec": {
            "securityContext": secure,
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [container],
            **spec,
        },
    }


def plain_job(run: str, pod: Object, **spec: Any) -> Object:
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    whole = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": template, **spec}
    metadata = {"name": f"{run}-lead", "labels": {**names.Identity(run).labels, names.LEAD: "true"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": whole}


def evict(api: Api, name: str) -> int:
    """Ask a pod to leave, as a drain does. The status: 429 if a budget for disruptions forbids it."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"api/v1/namespaces/{api.namespace}/pods/{name}/eviction"
    return int(api.http.post(path, json=eviction).status_code)


@contextmanager
def drained(cluster: Cluster, node: str, selector: str) -> Iterator[None]:
    """A node without these pods of it, which have ended, and closed to others."""
    kubectl = [str(cluster.folder / "bin" / "kubectl"), "--kubeconfig", str(cluster.admin)]
    flags = ["--delete-emptydir-data", "--force", "--timeout=300s", "--pod-selector", selector]
    try:
        subprocess.run([*kubectl, "drain", node, *flags], check=True, capture_output=True, timeout=400)
        yield
    finally:
        subprocess.run([*kubectl, "uncordon", node], check=True, capture_output=True, timeout=60)
