"""Each trouble is brought about on a real cluster, and the one line that tells of it is asserted.

What a cluster without real disks and with cgroup v1 cannot bring about is in test_diagnose_pure.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api import names
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.lifecycle import stop_delete
from tests.support.clusters import Cluster
from tests.support.kubernetes.causes import (
    TAG,
    broken,
    plain_job,
    plain_pod,
    start,
    thing,
    told,
    users_namespace,
)
from tests.support.kubernetes.driving import Named, all_gpus
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

TRAINER = "kubernetes.image=registry.example/team/trainer:1"
READ_ONLY = "{containers: [{name: main, volumeMounts: [{name: oarlock-store, readOnly: true}]}]}"
NODE_1 = "kubernetes.node_selector.kubernetes.io/hostname=node-1"
NODE_2 = "kubernetes.node_selector.kubernetes.io/hostname=node-2"


# How each is brought about with a job file, what is told, and what to do.
RUNS: dict[str, tuple[list[str], str, str]] = {
    "cpu": (
        ["roles.worker.cpu=100"],
        "worker-0: no node fits: 2 of 2 lack 100 cpu free",
        "ask for less with --set roles.worker.cpu=...",
    ),
    "memory": (
        ["roles.worker.memory=900Gi", "roles.worker.replicas=3"],
        "worker-0 and 2 more: no node fits: 2 of 2 lack 900Gi of memory free",
        "ask for less with --set roles.worker.memory=...",
    ),
    "gpu": (
        ["roles.worker.gpu=9"],
        "worker-0: no node fits: 2 of 2 lack 9 GPUs free",
        "ask for less with --set roles.worker.gpu=...",
    ),
    "selector": (
        ["kubernetes.node_selector.disk=ssd"],
        "worker-0: no node fits: 2 of 2 lack the labels disk=ssd",
        "choose labels that nodes have, with kubernetes.node_selector or roles.*.node_selector",
    ),
    "volume": (
        ["kubernetes.claim=elsewhere"],
        "worker-0: no node fits: 2 of 2 cannot reach the volume of claim elsewhere",
        "let it run where the volume is, or use another claim: --set kubernetes.claim=...",
    ),
    "image-name": (
        ["kubernetes.image=registry.example/Trainer:1"],
        "worker-0: registry.example/Trainer:1 is not the name of an image: "
        "repository name (Trainer) must be lowercase",
        "correct the name with --set kubernetes.image=...",
    ),
    "image-away": (
        ["kubernetes.image=registry.example/trainer:9", NODE_2],
        "worker-0: the registry of image registry.example/trainer:9 cannot be reached from the node: "
        "connection refused",
        "correct the name with --set kubernetes.image=..., or ask for a registry that nodes can reach",
    ),
    "image-gone": (
        ["kubernetes.image=registry.example/gone:1", NODE_1],
        "worker-0: there is no image registry.example/gone:1",
        "correct the name with --set kubernetes.image=...",
    ),
    "image-private": (
        ["kubernetes.image=registry.example/private:1", NODE_1],
        "worker-0: image registry.example/private:1 does not exist, or its registry wants a login",
        "correct the name, or name a secret to pull it with: --set kubernetes.pull_secrets=[...]",
    ),
    "image-never": (
        ["kubernetes.image=registry.example/trainer:9", "kubernetes.pull_policy=Never"],
        "worker-0: image registry.example/trainer:9 is not on the node, and pull_policy is Never",
        "let it be pulled: --set kubernetes.pull_policy=IfNotPresent",
    ),
    "pull-secret": (
        ["kubernetes.image=registry.example/private:3", "kubernetes.pull_secrets=[login]"],
        "worker-0: image registry.example/private:3 cannot be pulled: "
        "there is no secret login to pull it with",
        "correct kubernetes.pull_secrets, or create it: kubectl create secret docker-registry login ...",
    ),
    "no-python": (
        [
            TRAINER,
            "kubernetes.pod={containers: [{name: main, env: [{name: PATH, value: /}]}]}",
        ],
        "worker-0: image registry.example/team/trainer:1 has no python3",
        "choose one with Python 3.9 or newer, such as --set kubernetes.image=python:3.11-slim",
    ),
    "root": (
        ["kubernetes.user=image", TRAINER],
        "worker-0: image registry.example/team/trainer:1 runs as root, which Oarlock's pods may not",
        "name a user: --set kubernetes.user=1000",
    ),
    "claim-missing": (
        ["kubernetes.claim=nosuch"],
        "worker-0: there is no claim nosuch in the namespace",
        "name one of kubectl get pvc, or let Oarlock create it: --set kubernetes.claim.size=10Gi",
    ),
    "claim-class": (
        ["kubernetes.claim={name: classless, storage_class: nosuch}"],
        "worker-0: claim classless wants the storage class nosuch, which the cluster does not have",
        "delete claim classless and choose another with --set kubernetes.claim.storage_class=...; "
        "kubectl get storageclass lists them",
    ),
    "secret-file": (
        ["kubernetes.secrets.nosuch.path=/creds", "roles.worker.replicas=5"],
        "worker-0 and 4 more: there is no secret nosuch in the namespace",
        "create it (kubectl create secret generic nosuch ...) or correct kubernetes.secrets",
    ),
    "secret-variable": (
        ["kubernetes.secrets.nosuch.variables=true"],
        "worker-0: there is no secret nosuch in the namespace",
        "create it (kubectl create secret generic nosuch ...) or correct kubernetes.secrets",
    ),
    "secret-key": (
        ["kubernetes.secrets.half.env.PASSWORD=password"],
        "worker-0: secret half has no key password",
        "correct kubernetes.secrets.half.env, or add the key",
    ),
    "agent-memory": (
        ["roles.worker.memory=10Mi", "kubernetes.shm=1Mi"],
        "worker-0: was killed because it used more than its 10Mi of memory",
        "give it more with --set roles.worker.memory=20Mi, or use smaller batches",
    ),
    "task-memory": (
        ["args=[hog]", "limits.restarts=0", "roles.worker.memory=100Mi"],
        "worker-0: was killed because it used more than its 100Mi of memory",
        "give it more with --set roles.worker.memory=200Mi, or use smaller batches",
    ),
    "queue": (
        ["kubernetes.queue=gpus"],
        "the run waits in queue gpus for Kueue to admit it",
        "wait; kubectl describe localqueue gpus says how full it is, if the cluster has Kueue",
    ),
}


@pytest.fixture(scope="module")
def place(cluster: Cluster, api: Api, admin: Api) -> Iterator[Api]:
    """A namespace of our own, seen as the user sees it."""
    with users_namespace(cluster, admin, api) as there:
        yield there


@pytest.fixture(scope="module")
def runs(place: Api, admin: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """All of them at once: their troubles take their time side by side."""
    folder = tmp_path_factory.mktemp("programs")
    far = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["nowhere"]}]}
    volume = {
        "metadata": {"name": place.namespace},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "elsewhere",
            "hostPath": {"path": f"/tmp/{place.namespace}"},
            "claimRef": {"name": "elsewhere", "namespace": place.namespace},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [far]}},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "elsewhere"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "elsewhere",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    half = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "half"}, "data": {"user": "bWU="}}
    with thing(admin, "api/v1/persistentvolumes", volume), _registry():
        place.create(claim)
        place.create(half)
        yield {
            name: start(place, folder / name, f"diag-{name}", *sets) for name, (sets, _, _) in RUNS.items()
        }


@pytest.mark.parametrize("cause", RUNS)
def test_a_run_that_cannot_run_says_why_and_what_to_do(cause: str, runs: dict[str, str], place: Api) -> None:
    _, what, fix = RUNS[cause]
    problem = told(place, runs[cause], what)
    assert (problem.what, problem.fix) == (what, fix)
    assert problem.who == what.partition(": ")[0] or cause == "queue"


def test_an_agent_that_crashes_again_and_again_is_told_with_its_last_words(
    place: Api, tmp_path: Path
) -> None:
    run = start(place, tmp_path, "diag-crash", f"kubernetes.pod={READ_ONLY}")
    problem = told(place, run)
    assert problem.what.startswith("worker-0: its agent ends with code 1 repeatedly: /oarlock/store/")
    assert problem.what.endswith(" cannot be written: Read-only file system")
    assert problem.fix == "correct what it says and run it again; oarlock logs has the rest"


@pytest.mark.alone
def test_a_taint_is_told_with_the_toleration_that_helps(place: Api, admin: Api, tmp_path: Path) -> None:
    """As clusters are: the nodes with GPUs are tainted, and the others have none."""
    node = {
        "metadata": {"name": place.namespace, "labels": {TAG: "diagnose"}},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
    }
    room = {"nvidia.com/gpu": "8", "cpu": "8", "memory": "64Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    with thing(admin, "api/v1/nodes", node):
        change = {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
        kind = {"Content-Type": "application/merge-patch+json"}
        path = f"api/v1/nodes/{place.namespace}/status"
        assert admin.http.patch(path, content=json.dumps(change), headers=kind).is_success
        run = start(place, tmp_path, "diag-taint", "roles.worker.gpu=8")
        problem = told(place, run, "1 of 3 have a taint that it does not tolerate")
        place.delete("Job", f"{run}-lead")
    assert problem.what.startswith("worker-0: no node fits: ")
    assert "2 of 3 lack 8 GPUs free" in problem.what
    assert problem.fix.startswith(
        "tolerate it: --set 'kubernetes.tolerations=[{key: nvidia.com/gpu, operator: Exists}]'"
    )


@only_in_soak
def test_preemption_and_then_waiting_for_room_are_told(place: Api, admin: Api, tmp_path: Path) -> None:
    """Other work of higher priority takes all GPUs."""
    with all_gpus(), preempting(place, admin) as urgent:
        # It does not leave when it is asked to, or what it had to leave for might be over before it is told.
        run = start(
            place, tmp_path, "diag-preempted", "roles.worker.gpu=4", "limits.grace=60s", "args=[deaf]"
        )
        pod = eventually(lambda: _running(place, run), "the run")
        eventually(lambda: _is_created(place, urgent), "the priority class")
        problem = told(place, run)
        assert problem.what == "worker-0: had to leave node node-1 for work of higher priority"
        assert problem.fix == (
            "wait until there is room again, or give it a kubernetes.priority_class of its own"
        )
        place.delete("Pod", pod, grace=0)
        problem = told(place, run, "no node fits")
        assert problem.what == "worker-0: no node fits: 2 of 2 lack 4 GPUs free"
        assert problem.fix == ("wait until other work ends, or ask for less with --set roles.worker.gpu=...")
        place.delete("Pod", "urgent")
        eventually(lambda: not diagnose.find_problems(place, Named(run)), "no problem once there is room")
        stop_delete.delete(place, Named(run), now=True, patience=300)


@contextmanager
def preempting(place: Api, admin: Api) -> Iterator[dict[str, object]]:
    """A pod that wants all GPUs, to be created once the API server knows of its priority class: it looks them
    up in a copy that lags behind."""
    priority = {"metadata": {"name": place.namespace}, "value": 1000}
    wanted = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    with thing(admin, "apis/scheduling.k8s.io/v1/priorityclasses", priority):
        yield plain_pod("urgent", priorityClassName=place.namespace, container=wanted)


@only_in_soak
@pytest.mark.alone
def test_a_drained_node_is_told_until_the_task_runs_again(place: Api, tmp_path: Path) -> None:
    run = start(place, tmp_path, "diag-drained", "limits.grace=3s", "args=[deaf]")
    pod = eventually(lambda: _running(place, run), "the run")
    assert diagnose.find_problems(place, Named(run)) == []
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"api/v1/namespaces/{place.namespace}/pods/{pod}/eviction"
    assert place.http.post(path, json=eviction).is_success
    problem = told(place, run)
    assert problem.what.startswith("worker-0: was evicted from node node-")
    assert problem.what.endswith(", which is being drained")
    assert problem.fix == "wait: it starts again on another node"
    eventually(lambda: _running(place, run), "the run to go on")
    assert diagnose.find_problems(place, Named(run)) == []


def test_a_run_over_its_time_is_told(place: Api) -> None:
    place.create(plain_job("diag-late", plain_pod("diag-late"), activeDeadlineSeconds=1))
    problem = told(place, "diag-late", "the run was ended")
    assert problem.what == "the run was ended after 1 s, the limit that limits.runtime sets"
    assert problem.fix == "allow more with --set limits.runtime=..., or none"


def test_a_run_that_is_stopped_or_well_has_no_problem(place: Api, tmp_path: Path) -> None:
    run = start(place, tmp_path, "diag-well", "roles.worker.replicas=2")
    eventually(
        lambda: len([pod for pod in place.all("Pod", names.selecting(run)) if _is_up(pod)]) == 2,
        "the run",
    )
    assert diagnose.find_problems(place, Named(run)) == []
    suspended = {"spec": {"suspend": True}}
    for job in place.all("Job", names.selecting(run)):
        place.patch("Job", job["metadata"]["name"], suspended)
    problem = told(place, run)
    assert problem.what == "the run is suspended, and not by Oarlock"
    assert problem.fix.startswith("resume it: kubectl patch job diag-well-")
    for job in place.all("Job", names.selecting(run)):
        stopped = {"metadata": {"annotations": {names.STOPPED: "true"}}}
        place.patch("Job", job["metadata"]["name"], stopped)
    assert diagnose.find_problems(place, Named(run)) == []


@only_in_soak
def test_looking_takes_as_many_calls_for_many_pods_as_for_few(
    place: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(place, tmp_path, "diag-many", "roles.worker.cpu=100", "roles.worker.replicas=40")
    told(place, run, "worker-0 and 39 more: no node fits")
    asked: list[str] = []
    plain = Api.all

    def noted(self: Api, kind: str, *words: Any, **named: Any) -> Any:
        asked.append(kind)
        return plain(self, kind, *words, **named)

    monkeypatch.setattr(Api, "all", noted)
    diagnose.find_problems(place, Named(run))
    assert asked == ["Job", "Pod", *["Event"] * 5]


@only_in_soak
@pytest.mark.alone
def test_a_lost_node_is_told(cluster: Cluster, place: Api, tmp_path: Path) -> None:
    run = start(place, tmp_path, "diag-lost", NODE_2)
    eventually(lambda: _running(place, run), "the run")
    with broken(cluster, ["cut-node", "2"], ["join-node", "2"]):
        first = told(place, run)
        problem = told(place, run, "is lost")
    assert first.what in ("worker-0: its node node-2 does not answer", "worker-0: its node node-2 is lost")
    assert problem.what == "worker-0: its node node-2 is lost"
    assert problem.fix == "wait: it starts again on another node"


def _running(api: Api, run: str) -> str | None:
    for pod in api.all("Pod", names.selecting(run)):
        if _is_up(pod):
            return str(pod["metadata"]["name"])
    return None


def _is_up(pod: dict[str, object]) -> bool:
    states = [status["state"] for status in pod["status"].get("containerStatuses", [])]  # type: ignore[attr-defined]
    return "deletionTimestamp" not in pod["metadata"] and any("running" in state for state in states)  # type: ignore[operator]


def _is_created(api: Api, manifest: dict[str, object]) -> bool:
    try:
        return bool(api.create(manifest))
    except ApiError as error:
        if "no PriorityClass" not in error.message:
            raise
        return False


# Nodes of the test cluster ask port 1 of their own for every image that they do not have.
_REGISTRY = """
import http.server

class Answer(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        is_private = "private" in self.path
        self.send_response(401 if is_private else 404)
        if is_private:
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_GET = do_HEAD

server = http.server.HTTPServer(("127.0.0.1", 1), Answer)
print("ready", flush=True)
server.serve_forever()
"""


@contextmanager
def _registry() -> Iterator[None]:
    """One for node-1 that has no image and wants a login for those called private."""
    inside = ["nsenter", "--net=/var/run/netns/okube-n1"]
    command = [*inside, sys.executable, "-c", _REGISTRY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout
        assert server.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            server.kill()
