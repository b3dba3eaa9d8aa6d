"""`oarlock plan`: what would be created, what it would take, and what the cluster says to that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api import quantity
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import JOB, MANAGED
from oarlock.engines.kubernetes.plan import quota_use
from tests.support.kubernetes import spaces
from tests.support.kubernetes.causes import plain_pod
from tests.support.kubernetes.small import sets
from tests.support.small_programs import write
from tests.support.waiting import eventually

PLANNED = sets("name=tool-plan", "roles.worker.memory=192Mi", "roles.worker.cpu=0.25")
TOP = {
    *(
        "run",
        "objects",
        "groups",
        "total",
        "claims",
        "program",
        "pip",
        "ingest",
        "serve",
        "network",
        "warnings",
    ),
    *("cluster", "unreachable", "ok"),
}
CLUSTER = {"namespace", "context", "server", "admission", "quotas", "unknown", "problems"}
HIGH = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}


@pytest.fixture
def program(cluster: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('hello')\n")
    (tmp_path / "notes.txt").write_text("x" * 5000)


@pytest.fixture(scope="module")
def space(cluster: Any) -> Iterator[Api]:
    with spaces.own(cluster, spaces.RESTRICTED) as admin:
        yield admin


@pytest.fixture
def quota(space: Api) -> Iterator[Any]:
    def limit(**hard: str) -> None:
        named = {name.replace("_", "."): amount for name, amount in hard.items()}
        named = {name.replace("count.", "count/"): amount for name, amount in named.items()}
        space.create(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "small"},
                "spec": {"hard": named},
            }
        )
        eventually(lambda: "used" in space.get("ResourceQuota", "small").get("status", {}), "status")

    yield limit
    space.delete("ResourceQuota", "small")


def test_it_tells_what_serving_would_create(oarlock: Any, tmp_path: Path) -> None:
    """Without a cluster: the model does not exist yet."""
    write(tmp_path / "train.py", "print('hello')\n")
    serve = {"replicas": "2..4", "cpu": 0.5, "when": "accuracy >= 0.9", "ingress": "digits.example"}
    words = ("--set", "name=tool", "--set", f"serve={json.dumps(serve)}", "--set", "serve.image=mine:1")
    told = json.loads(oarlock("plan", *words, "--json", "train.py").stdout)["serve"]
    assert (told["pods"], told["cpu"], told["image"]) == ("2..4", 0.5, "mine:1")
    kinds = ["Service", "NetworkPolicy", "PodDisruptionBudget", "HorizontalPodAutoscaler", "Ingress"]
    names = [f"{kind}/tool-serve" for kind in (*kinds, "Deployment")]
    assert told["objects"] == ["ConfigMap/tool-serve-code-*", *names]
    said = oarlock("plan", *words, "train.py").stdout
    assert "with `oarlock run --serve` if accuracy >= 0.9, or at any time" in said
    assert "2..4 pods with 0.5 CPU, 2.06Gi and mine:1" in said
    assert "Ingress/tool-serve" in said
    assert json.loads(oarlock("plan", "--json", "train.py").stdout)["serve"] is None


def test_it_tells_what_would_be_created_and_that_it_fits(oarlock: Any, program: None, api: Api) -> None:
    done = oarlock("plan", "-n", "3", *PLANNED, "--set", "pip=six==1.16.0", "--json", "train.py")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told) == TOP
    assert set(told["cluster"]) == CLUSTER
    assert told["objects"] == [
        "PersistentVolumeClaim/tool-plan",
        "ConfigMap/tool-plan-xxxx-code-0",
        "Secret/tool-plan-xxxx",
        "Service/tool-plan-xxxx",
        "NetworkPolicy/tool-plan-xxxx",
        "Job/tool-plan-xxxx-lead",
        "Job/tool-plan-xxxx-worker",
    ]
    groups = [(one["group"], one["role"], one["machines"], one["cpu"]) for one in told["groups"]]
    assert groups == [("lead", "worker", 1, 0.25), ("worker", "worker", 2, 0.25)]
    assert told["groups"][0]["memory"] == 256 * 1024**2  # with the 64 MiB of /dev/shm
    assert told["total"] == {"machines": 3, "cpu": 0.75, "memory": 3 * 256 * 1024**2, "gpu": 0}
    assert told["program"]["files"] == 2
    assert told["program"]["largest"][0] == {"file": "notes.txt", "size": 5000}
    assert told["pip"] == ["six==1.16.0"]
    assert [one["refusal"] for one in told["cluster"]["admission"]] == [None, None]
    assert api.all("Job", "app.kubernetes.io/name=tool-plan") == []


def test_it_tells_where_an_image_comes_from(oarlock: Any, program: None) -> None:
    def images(*words: str) -> list[tuple[str, str]]:
        told = json.loads(oarlock("plan", *PLANNED, *words, "--json", "train.py").stdout)
        return [(one["image"], one["image_from"]) for one in told["groups"]]

    assert images("--set", "kubernetes.image=busybox") == [("busybox", "job")]
    [(image, told)] = images("--framework", "torch")
    assert re.fullmatch(r"pytorch/pytorch:2\.\d+\.\d-cuda[\d.]+-cudnn\d-runtime", image)
    version = metadata.version("torch").partition("+")[0]
    assert told == "default for torch" + ("" if f":{version}-" in image else f" (here: {version})")
    assert images()[0][1] == "default"


def test_it_says_what_the_network_of_a_node_means(oarlock: Any, program: None, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("program: train.py\nkubernetes: {pod: {hostNetwork: true}}\n")
    shown = oarlock("plan", *PLANNED, "job.yaml").stdout
    assert "pods of lead listen on their nodes' own addresses: port 7077" in shown
    assert "NetworkPolicy does not apply" in shown
    told = json.loads(oarlock("plan", *PLANNED, "--json", "job.yaml").stdout)
    assert [group["host_network"] for group in told["groups"]] == [True]
    assert "hostNetwork" not in oarlock("plan", *PLANNED, "train.py").stdout


def test_a_quota_that_is_too_small_is_told_resource_by_resource(
    oarlock: Any, program: None, quota: Any, space: Api
) -> None:
    quota(pods="2", requests_memory="1Gi", count_jobs_batch="2", requests_storage="20Gi")
    words = ("--namespace", space.namespace, *PLANNED)
    done = oarlock("plan", "-n", "3", *words, "--json", "train.py")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    rooms = {room["resource"]: room for room in told["cluster"]["quotas"]}
    assert {name: room["fits"] for name, room in rooms.items()} == {
        "pods": False,
        "requests.memory": True,
        "requests.storage": True,
        "count/jobs.batch": True,
    }
    assert (rooms["pods"]["used"], rooms["pods"]["hard"], rooms["pods"]["after"]) == (0, 2, 3)
    assert rooms["requests.storage"]["after"] == 10 * 1024**3
    assert told["cluster"]["problems"] == ["quota small does not fit: pods 0 of 2 used, 3 needed"]
    shown = oarlock("plan", "-n", "3", *words, "train.py")
    assert shown.returncode == 1
    assert "does not fit" in shown.stdout
    assert oarlock("plan", "-n", "2", *words, "train.py").returncode == 0


def test_what_fits_to_the_byte_fits(oarlock: Any, program: None, quota: Any, space: Api) -> None:
    quota(requests_memory="768Mi", limits_memory="805306368", requests_cpu="750m")
    words = ("--namespace", space.namespace, *PLANNED, "--json")
    done = oarlock("plan", "-n", "3", *words, "train.py")
    assert done.returncode == 0, done.stdout
    assert {room["resource"] for room in json.loads(done.stdout)["cluster"]["quotas"]} == {
        *("requests.memory", "limits.memory", "requests.cpu"),
    }
    assert oarlock("plan", "-n", "4", *words, "train.py").returncode == 1


def test_a_limit_range_refuses_in_one_line(oarlock: Any, program: None, space: Api) -> None:
    limits = [{"type": "Container", "max": {"memory": "200Mi"}}]
    space.create(
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "low"}, "spec": {"limits": limits}}
    )
    # The API server looks it up in a copy that lags behind.
    path = f"api/v1/namespaces/{space.namespace}/pods?dryRun=All"
    large = plain_pod("large", container={"resources": {"limits": {"memory": "1Gi"}}})
    try:
        eventually(lambda: space.http.post(path, json=large).status_code == 403, "a limit that is in force")
        done = oarlock("plan", "--namespace", space.namespace, *PLANNED, "--json", "train.py")
    finally:
        space.delete("LimitRange", "low")
    assert done.returncode == 1
    refusal = json.loads(done.stdout)["cluster"]["admission"][0]["refusal"]
    assert "LimitRange" in refusal
    assert "200Mi" in refusal
    assert "\n" not in refusal


def test_pod_security_refuses_in_one_line(oarlock: Any, program: None) -> None:
    done = oarlock("plan", *PLANNED, "--set", "kubernetes.pod={hostNetwork: true}", "train.py")
    assert done.returncode == 1
    assert "pod of lead: refused: " in done.stdout
    assert "Pod Security restricted" in done.stdout
    assert done.stdout.rstrip().endswith("it would be refused")


def test_claims_are_new_or_there_or_missing(oarlock: Any, program: None, api: Api) -> None:
    def claims(*words: str) -> tuple[int, list[str], list[str]]:
        done = oarlock("plan", *PLANNED, *words, "--json", "train.py")
        told = json.loads(done.stdout)
        return done.returncode, [one["state"] for one in told["claims"]], told["objects"]

    manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "tool-plan", "labels": {MANAGED: "oarlock", JOB: "tool-plan"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    assert claims()[:2] == (0, ["to be created"])
    api.create(manifest)
    try:
        code, states, objects = claims()
    finally:
        api.delete("PersistentVolumeClaim", "tool-plan")
    assert (code, states) == (0, ["exists"])
    assert "PersistentVolumeClaim/tool-plan" not in objects
    assert claims("--set", "kubernetes.claim=tool-nowhere")[:2] == (1, ["missing"])
    assert claims("--set", "kubernetes.claim=none")[:2] == (0, [])


def test_a_name_that_is_taken_is_told(oarlock: Any, program: None, space: Api) -> None:
    container = {"name": "main", "image": "busybox"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    space.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "tool-taken-lead"},
            "spec": {"suspend": True, "template": template},
        }
    )
    try:
        done = oarlock("plan", "--namespace", space.namespace, "--name", "tool-taken", *PLANNED, "train.py")
    finally:
        space.delete("Job", "tool-taken-lead")
    assert done.returncode == 1
    assert f"there is a run called tool-taken in namespace {space.namespace}" in done.stdout


def test_without_a_cluster_the_rest_is_shown(
    oarlock: Any, program: None, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "away"
    away.write_text(cluster.user.read_text().replace("10.240.0.1:6443", "127.0.0.1:1"))
    for place in (away, tmp_path / "none"):
        monkeypatch.setenv("KUBECONFIG", str(place))
        done = oarlock("plan", *PLANNED, "--set", "network=private", "train.py")
        assert (done.returncode, done.stderr) == (0, "")
        assert "private has no effect here: every pod has its own network" in done.stdout
        assert "Job/tool-plan-xxxx-lead" in done.stdout
        assert done.stdout.splitlines()[-1].startswith("the cluster was not asked: ")
        told = json.loads(oarlock("plan", *PLANNED, "--json", "train.py").stdout)
        assert (set(told), told["cluster"], told["ok"]) == (TOP, None, True)
        assert told["unreachable"]


def test_a_viewer_is_told_what_is_missing(
    oarlock: Any, program: None, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.folder / "view.kubeconfig"))
    done = oarlock("plan", "-n", "2", *PLANNED, "train.py")
    assert done.returncode == 1
    assert "you may not create pods in namespace team" in done.stdout
    assert "you may not create jobs.batch in namespace team" in done.stdout


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("100m", "0.1"),
        ("2", "2"),
        ("1.5Gi", str(3 * 2**29)),
        ("1e3", "1000"),
        ("5k", "5000"),
        ("12E", "12e18"),
    ],
)
def test_quantities_are_exact(written: str, amount: str) -> None:
    assert quantity.parse(written) == Decimal(amount)


def test_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a quantity: 3 apples"):
        quantity.parse("3 apples")


def _pod(**spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    return {"spec": {"containers": [{"name": "main", "resources": resources}], **spec}}


def test_what_is_limited_is_requested_too() -> None:
    usage = quota_use.of_pod(_pod())
    assert [usage[name] for name in ("requests.memory", "limits.memory", "cpu")] == [2**30, 2**30, 1]
    assert "limits.cpu" not in usage


def test_init_containers_count_by_the_largest_and_sidecars_in_full() -> None:
    first = {"name": "first", "resources": {"requests": {"cpu": "3"}}}
    beside = {"name": "beside", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}
    assert quota_use.of_pod(_pod(initContainers=[first]))["requests.cpu"] == 3
    assert quota_use.of_pod(_pod(initContainers=[beside]))["requests.cpu"] == 3


@pytest.mark.parametrize(
    ("scope", "applies"),
    [
        ({"scopes": ["NotBestEffort"]}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopeSelector": {"matchExpressions": [HIGH]}}, True),
        ({"scopeSelector": {"matchExpressions": [{**HIGH, "operator": "NotIn"}]}}, False),
    ],
)
def test_a_quota_counts_only_the_pods_in_its_scope(scope: dict[str, Any], applies: bool) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}, **scope}}
    found = quota_use.rooms([quota], [(_pod(priorityClassName="high"), 3)], [])
    assert [room.needed for room in found] == ([3] if applies else [])
