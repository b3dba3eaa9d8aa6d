"""Each trouble is brought about on a real cluster, and the one line that tells of it is asserted.

What a cluster without real disks and with cgroup v1 cannot bring about is in test_diagnose_pure.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from kubernetes.causes import (
    TAG,
    limit_range,
    namespace,
    plain_job,
    plain_pod,
    quota,
    start,
    thing,
    told,
    until,
)
from kubernetes.conftest import Cluster

from oarlock.engines.kubernetes import diagnose, labels
from oarlock.engines.kubernetes.api import Api, ApiError

TRAINER = "kubernetes.image=registry.example/team/trainer:1"
READ_ONLY = "{containers: [{name: main, volumeMounts: [{name: oarlock-store, readOnly: true}]}]}"
NODE_1 = "kubernetes.node_selector.kubernetes.io/hostname=node-1"
NODE_2 = "kubernetes.node_selector.kubernetes.io/hostname=node-2"

POD = plain_pod("diag-never")
JOB = plain_job("diag-never", POD)

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
        "worker-0: registry.example/Trainer:1 is no name of an image: "
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
        "worker-0: image registry.example/team/trainer:1 runs as root, which a pod of ours may not",
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
        "wait; kubectl describe localqueue gpus tells how full it is, if the cluster has Kueue",
    ),
}

# Refused before anything is created.
REFUSED: dict[str, tuple[list[str], str, str]] = {
    "pod-security": (
        ["kubernetes.pod={hostNetwork: true}"],
        "Pod Security restricted of the namespace forbids host namespaces (hostNetwork=true)",
        "take hostNetwork out of kubernetes.pod, or use a namespace that allows it",
    ),
    "pod-security-user": (
        ["kubernetes.pod={securityContext: {runAsNonRoot: false}}"],
        "Pod Security restricted of the namespace forbids runAsNonRoot != true (pod must not set "
        "securityContext.runAsNonRoot=false)",
        "run it as another user: --set kubernetes.user=1000, and no runAs... under kubernetes.pod",
    ),
    "service-account": (
        ["kubernetes.service_account=nosuch"],
        "there is no service account nosuch in the namespace",
        "leave kubernetes.service_account out, or choose one of: kubectl get serviceaccounts",
    ),
    "priority-class": (
        ["kubernetes.priority_class=nosuch"],
        "the cluster has no priority class nosuch",
        "leave kubernetes.priority_class out, or choose one of: kubectl get priorityclasses",
    ),
    "invalid": (
        ["kubernetes.pod={activeDeadlineSeconds: 0}"],
        "the cluster does not take it: spec.activeDeadlineSeconds: Invalid value: 0: "
        "must be between 1 and 2147483647, inclusive",
        "correct it under kubernetes.pod, which is merged into every pod",
    ),
}

RULED = {
    "quota": (
        [quota(requests__memory="100Mi")],
        "quota small of the namespace does not allow it: requests.memory 0 of 100Mi used, 264Mi asked for",
        "ask for less with --set roles.worker.memory=..., or ask its administrator for more",
    ),
    "quota-objects": (
        [quota(count_of_configmaps="1")],  # every namespace has one, with the cluster's certificate
        "quota small of the namespace allows no more configmaps: count/configmaps 1 of 1 used, 1 asked for",
        "delete runs that have ended (oarlock ps lists them), or ask its administrator for more",
    ),
    "quota-unsaid": (
        [quota(limits__cpu="4")],
        "quota small of the namespace wants every pod to say its limits.cpu",
        "say it: --set 'kubernetes.pod={containers: [{name: main, resources: {limits: {cpu: 2}}}]}'",
    ),
    "limit-range": (
        [limit_range(max={"memory": "100Mi"})],
        "the namespace's LimitRange allows at most 100Mi of memory, with /dev/shm, and it asks for 264Mi",
        "ask for less with --set roles.worker.memory=..., or ask its administrator to change it",
    ),
}


@pytest.fixture(scope="module")
def place(cluster: Cluster, api: Api, admin: Api) -> Iterator[Api]:
    """A namespace of our own, seen as the user sees it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(cluster.user))
        with namespace(admin, api) as there:
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


@pytest.mark.parametrize("cause", REFUSED)
def test_what_admission_refuses_is_told_before_anything_is_created(
    cause: str, place: Api, tmp_path: Path
) -> None:
    sets, what, fix = REFUSED[cause]
    with pytest.raises(ApiError) as refused:
        start(place, tmp_path, "diag-refused", *sets)
    assert diagnose.explain(refused.value)[:2] == (what, fix)
    assert place.all("Job", labels.selecting("diag-refused")) == []


@pytest.mark.parametrize("cause", RULED)
def test_the_rules_of_a_namespace_are_told_before_anything_runs(
    cause: str, api: Api, admin: Api, tmp_path: Path
) -> None:
    rules, what, fix = RULED[cause]
    with namespace(admin, api, *rules) as there:
        with pytest.raises(ApiError) as refused:
            start(there, tmp_path, "diag-ruled")
        assert diagnose.explain(refused.value)[:2] == (what, fix)


def test_a_quota_that_fills_up_later_is_told_of_the_job(api: Api, admin: Api, tmp_path: Path) -> None:
    with namespace(admin, api, quota(pods="1")) as there:
        run = start(there, tmp_path, "diag-quota", "roles.worker.replicas=3")
        problem = told(there, run)
        assert problem.what == (
            "worker-1 and worker-2: quota small of the namespace does not allow it: "
            "pods 1 of 1 used, 1 asked for"
        )
        assert problem.fix == ("end other runs (oarlock ps lists them), or ask its administrator for more")
        assert problem.who == "worker-1 and worker-2"


def test_pod_security_that_refuses_a_jobs_pods_is_told(place: Api) -> None:
    place.create(plain_job("diag-insecure", plain_pod("diag-insecure", hostPID=True)))
    problem = told(place, "diag-insecure")
    assert problem.what == (
        "worker-0 and worker-1: Pod Security restricted of the namespace forbids "
        "host namespaces (hostPID=true)"
    )
    assert problem.fix == "take hostPID out of kubernetes.pod, or use a namespace that allows it"


def test_a_limit_range_that_refuses_a_jobs_pods_is_told(api: Api, admin: Api) -> None:
    large = plain_pod("diag-large", container={"resources": {"limits": {"memory": "1Gi"}}})
    with namespace(admin, api, limit_range(max={"memory": "100Mi"})) as there:
        there.create(plain_job("diag-large", large))
        problem = told(there, "diag-large")
    assert problem.what == (
        "worker-0 and worker-1: the namespace's LimitRange allows at most 100Mi of memory, with /dev/shm, "
        "and it asks for 1Gi"
    )
    assert problem.fix.startswith("ask for less with --set roles.worker.memory=...")


def test_an_agent_that_crashes_again_and_again_is_told_with_its_last_words(
    place: Api, tmp_path: Path
) -> None:
    run = start(place, tmp_path, "diag-crash", f"kubernetes.pod={READ_ONLY}")
    problem = told(place, run)
    assert problem.what.startswith("worker-0: its agent ends with code 1 again and again: /oarlock/store/")
    assert problem.what.endswith(" cannot be written: Read-only file system")
    assert problem.fix == "correct what it says and run again; oarlock logs has the rest"


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


def test_preemption_and_then_waiting_for_room_are_told(place: Api, admin: Api, tmp_path: Path) -> None:
    """Other work of higher priority takes all GPUs."""
    run = start(place, tmp_path, "diag-preempted", "roles.worker.gpu=4")
    until("the run", lambda: _running(place, run))
    priority = {"metadata": {"name": place.namespace}, "value": 1000}
    with thing(admin, "apis/scheduling.k8s.io/v1/priorityclasses", priority):
        urgent = plain_pod(
            "urgent",
            priorityClassName=place.namespace,
            container={"resources": {"limits": {"nvidia.com/gpu": "4"}}},
        )
        # The API server looks its priority classes up in a copy that lags behind.
        until("the priority class", lambda: _is_created(place, urgent))
        problem = told(place, run)
        assert problem.what == "worker-0: had to leave node node-1 for work of higher priority"
        assert problem.fix == (
            "wait until there is room again, or give it a kubernetes.priority_class of its own"
        )
        problem = told(place, run, "no node fits")
        assert problem.what == "worker-0: no node fits: 2 of 2 lack 4 GPUs free"
        assert problem.fix == ("wait until other work ends, or ask for less with --set roles.worker.gpu=...")
        place.delete("Pod", "urgent")
        until("no problem once there is room", lambda: not diagnose.look(place, run))


@pytest.mark.alone
def test_a_drained_node_is_told_until_the_task_runs_again(place: Api, tmp_path: Path) -> None:
    run = start(place, tmp_path, "diag-drained", "limits.grace=3s", "args=[deaf]")
    pod = until("the run", lambda: _running(place, run))
    assert diagnose.look(place, run) == []
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"api/v1/namespaces/{place.namespace}/pods/{pod}/eviction"
    assert place.http.post(path, json=eviction).is_success
    problem = told(place, run)
    assert problem.what.startswith("worker-0: was evicted from node node-")
    assert problem.what.endswith(", which is being drained")
    assert problem.fix == "wait: it starts again on another node"
    until("the run to go on", lambda: _running(place, run))
    assert diagnose.look(place, run) == []


def test_a_run_over_its_time_is_told(place: Api) -> None:
    place.create(plain_job("diag-late", plain_pod("diag-late"), activeDeadlineSeconds=1))
    problem = told(place, "diag-late")
    assert problem.what == "the run was ended after 1 s, the most that limits.runtime allows it"
    assert problem.fix == "allow more with --set limits.runtime=..., or none"


def test_a_run_that_is_stopped_or_well_has_no_problem(place: Api, tmp_path: Path) -> None:
    run = start(place, tmp_path, "diag-well", "roles.worker.replicas=2")
    until(
        "the run", lambda: len([pod for pod in place.all("Pod", labels.selecting(run)) if _is_up(pod)]) == 2
    )
    assert diagnose.look(place, run) == []
    suspended = {"spec": {"suspend": True}}
    for job in place.all("Job", labels.selecting(run)):
        place.patch("Job", job["metadata"]["name"], suspended)
    problem = told(place, run)
    assert problem.what == "the run is suspended, and not by Oarlock"
    assert problem.fix.startswith("resume it: kubectl patch job diag-well-")
    for job in place.all("Job", labels.selecting(run)):
        stopped = {"metadata": {"annotations": {labels.STOPPED: "true"}}}
        place.patch("Job", job["metadata"]["name"], stopped)
    assert diagnose.look(place, run) == []


def test_looking_takes_as_many_calls_for_many_pods_as_for_few(
    place: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(place, tmp_path, "diag-many", "roles.worker.cpu=100", "roles.worker.replicas=40")
    told(place, run, "worker-0 and 39 more: no node fits")
    asked: list[str] = []
    plain = Api.all
    monkeypatch.setattr(
        Api, "all", lambda self, kind, *a, **k: asked.append(kind) or plain(self, kind, *a, **k)
    )
    diagnose.look(place, run)
    assert asked == ["Job", "Pod", *["Event"] * 5]


@pytest.mark.parametrize(
    ("user", "namespaced", "ask", "what"),
    [
        ("view", None, lambda they: they.create(POD, dry_run=True), "create pods in namespace team"),
        ("view", None, lambda they: they.create(JOB, dry_run=True), "create jobs.batch in namespace team"),
        ("view", None, lambda they: they.patch("Job", "any", {}), "patch jobs.batch in namespace team"),
        (
            "view",
            None,
            lambda they: they.delete_all("Job", "a=b"),
            "deletecollection jobs.batch in namespace team",
        ),
        ("view", None, lambda they: they.all("Secret"), "list secrets in namespace team"),
        ("edit", "kube-system", lambda they: they.create(POD), "create pods in namespace kube-system"),
    ],
)
def test_a_missing_permission_is_named(
    user: str,
    namespaced: str | None,
    ask: Callable[[Api], object],
    what: str,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.folder / f"{user}.kubeconfig"))
    with closing(Api(namespace=namespaced)) as they, pytest.raises(ApiError) as refused:
        ask(they)
    problem = diagnose.explain(refused.value)
    assert problem.what == f"you may not {what}"
    assert problem.fix == (
        "ask its administrator for the role edit, or choose a namespace of yours with kubernetes.namespace"
    )


def test_a_namespace_that_is_not_there_is_told(
    admin: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.admin))
    with closing(Api(namespace="nosuch")) as they, pytest.raises(ApiError) as refused:
        they.create(POD, dry_run=True)
    problem = diagnose.explain(refused.value)
    assert problem.what == "the cluster has no namespace nosuch"
    assert problem.fix.startswith("choose one that it has with --set kubernetes.namespace=...")


@pytest.mark.parametrize(
    ("change", "what", "fix"),
    [
        (
            {"token": "expired"},
            "the cluster does not accept your credentials: they are wrong or have expired",
            "log in to the cluster again (kubectl get pods must work)",
        ),
        (
            {"server": "https://127.0.0.1:1"},
            "the cluster's API server cannot be reached: connection refused",
            "check network and VPN",
        ),
        (
            {"server": "https://nosuch.invalid:6443"},
            "the cluster's API server cannot be reached: its name is unknown",
            "check network and VPN",
        ),
        (
            {"certificate-authority": "/etc/ssl/certs/ca-certificates.crt"},
            "the API server's certificate is not the one that the kubeconfig expects",
            "get a new kubeconfig for this cluster",
        ),
    ],
    ids=["credentials", "refused", "dns", "certificate"],
)
def test_a_cluster_that_cannot_be_talked_to_is_told(
    change: dict[str, str],
    what: str,
    fix: str,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = json.loads(cluster.user.read_text())
    config["clusters"][0]["cluster"].update({key: one for key, one in change.items() if key != "token"})
    config["users"][0]["user"].update({key: one for key, one in change.items() if key == "token"})
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with closing(Api()) as they, pytest.raises(ApiError) as refused:
        they.all("Pod")
    problem = diagnose.explain(refused.value)
    assert problem.what == what
    assert problem.fix.startswith(fix)


@pytest.mark.alone
def test_a_lost_node_is_told(cluster: Cluster, place: Api, tmp_path: Path) -> None:
    run = start(place, tmp_path, "diag-lost", NODE_2)
    until("the run", lambda: _running(place, run))
    with _broken(cluster, ["cut-node", "2"], ["join-node", "2"]):
        first = told(place, run)
        problem = told(place, run, "is lost")
    assert first.what in ("worker-0: its node node-2 does not answer", "worker-0: its node node-2 is lost")
    assert problem.what == "worker-0: its node node-2 is lost"
    assert problem.fix == "wait: it starts again on another node"


@pytest.mark.alone
def test_an_api_server_that_is_away_is_told(cluster: Cluster, api: Api) -> None:
    away = "the cluster's API server cannot be reached: "
    api.all("Job")
    with _broken(cluster, ["stop-api"], ["start-api"]):
        said = []
        for _ in range(12):  # each connection that was open has its own end
            with pytest.raises(ApiError) as refused:
                diagnose.look(api, "diag-any")
            said.append(diagnose.explain(refused.value))
    assert all(problem.what.startswith(away) for problem in said)
    problem = said[-1]
    assert problem.what == away + "connection refused"
    assert problem.fix.endswith("a run that is there goes on meanwhile")
    until("the API server", lambda: _answers(api))


def _running(api: Api, run: str) -> str | None:
    for pod in api.all("Pod", labels.selecting(run)):
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


def _answers(api: Api) -> bool:
    try:
        return api.all("Job") is not None
    except ApiError:
        return False


@contextmanager
def _broken(cluster: Cluster, how: list[str], back: list[str]) -> Iterator[None]:
    if cluster.script is None:
        pytest.skip("only our own cluster is broken on purpose")
    with ExitStack() as stack:
        stack.callback(subprocess.run, [cluster.script, *back], check=True, capture_output=True)
        subprocess.run([cluster.script, *how], check=True, capture_output=True)
        yield


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
