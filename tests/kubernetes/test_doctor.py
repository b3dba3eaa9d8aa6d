"""`oarlock doctor --on kubernetes`: what a cluster lets this user do, and what it does not tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.plan import access, cluster_access
from tests.support.kubernetes import spaces
from tests.support.waiting import eventually

RESOURCES = [need.name for need in access.NEEDS]
NAMES = [
    *("cluster", "version", "user", *RESOURCES, "quota", "LimitRange"),
    *("Pod Security", "storage class", "image", "clock"),
]


@pytest.fixture(scope="module")
def space(cluster: Any) -> Iterator[Api]:
    with spaces.own(cluster, {}) as admin:
        yield admin


def findings(done: Any) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_an_editor_can_do_everything(oarlock: Any, cluster: Any) -> None:
    done = oarlock("doctor", "--on", "kubernetes", "--image", "busybox:1", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert set(told) == {"oarlock", "python", "ok", "checks", "frameworks"}
    assert (told["ok"], told["frameworks"]) == (True, [])
    assert [check["name"] for check in told["checks"]] == NAMES
    assert all(set(check) == {"name", "state", "detail", "fix"} for check in told["checks"])
    found = findings(done)
    assert {name for name, check in found.items() if check["state"] != "ok"} == {"storage class", "image"}
    assert found["user"]["detail"] == "editor"
    assert found["Pod Security"]["detail"].startswith("restricted")
    assert found["image"]["detail"].startswith("busybox:1: cannot tell: ")


def test_it_is_told_line_by_line(oarlock: Any, cluster: Any) -> None:
    done = oarlock("doctor", "--on", "kubernetes")
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + len(NAMES)
    assert [line.split()[0] for line in lines[1:4]] == ["ok", "ok", "ok"]
    assert any(line.startswith("unknown  storage class") for line in lines)


def test_a_viewer_is_told_exactly_what_is_missing(
    oarlock: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.folder / "view.kubeconfig"))
    done = oarlock("doctor", "--on", "kubernetes", "--json")
    assert done.returncode == 1
    found = findings(done)
    missing = {
        name: check["detail"].partition(": ")[0].removeprefix("you may not ")
        for name, check in found.items()
        if name in RESOURCES and check["state"] != "ok"
    }
    assert missing == {
        "jobs.batch": "create, patch, delete, deletecollection",
        "pods": "create, patch, delete, deletecollection",
        "configmaps": "create, deletecollection",
        "secrets": "create, list, deletecollection",
        "services": "create, delete",
        "networkpolicies.networking.k8s.io": "create, deletecollection",
        "persistentvolumeclaims": "create, delete",
        "pods/exec": "get, create",
        "pods/eviction": "create",
        "deployments.apps": "create, patch, delete",
        "horizontalpodautoscalers.autoscaling": "create, patch, delete",
        "poddisruptionbudgets.policy": "create, patch, delete",
        "ingresses.networking.k8s.io": "create, delete",
    }
    assert found["pods/exec"]["state"] == "warning"
    assert found["pods/exec"]["detail"].endswith("needed for `stacks`, `pull`")
    assert found["jobs.batch"]["state"] == "failed"
    assert found["jobs.batch"]["fix"] == "ask for the role edit in namespace team"


def test_every_permission_is_one_that_edit_has(api: Api) -> None:
    assert {need.name: access.lacking(api, need) for need in access.NEEDS} == {name: [] for name in RESOURCES}


def test_quotas_and_limits_are_summed_up(oarlock: Any, space: Api) -> None:
    words = ("doctor", "--on", "kubernetes", "--namespace", space.namespace, "--json")
    found = findings(oarlock(*words))
    assert (found["quota"]["detail"], found["LimitRange"]["detail"]) == ("none", "none")
    quota = {"hard": {"pods": "7", "requests.memory": "1Gi"}}
    limits = {"limits": [{"type": "Container", "max": {"memory": "1Gi"}, "default": {"memory": "1Gi"}}]}
    for kind, spec in (("ResourceQuota", quota), ("LimitRange", limits)):
        space.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": "few"}, "spec": spec})
    try:
        eventually(lambda: counted(space) == "7", "a quota that is counted")
        found = findings(oarlock(*words))
        space.patch("ResourceQuota", "few", {"spec": {"hard": {"pods": "0"}}})
        eventually(lambda: counted(space) == "0", "a quota without pods")
        full = findings(oarlock(*words))
    finally:
        space.delete("ResourceQuota", "few")
        space.delete("LimitRange", "few")
    assert "few: pods 0 of 7, requests.memory 0 of 1Gi" in found["quota"]["detail"]
    assert found["LimitRange"]["detail"] == "few: max memory 1Gi per Container"
    assert (full["quota"]["state"], full["quota"]["detail"]) == ("warning", "used up: pods of few (0)")


def counted(space: Api) -> str | None:
    """The pods that the quota allows, by the controller that also tells how many there are."""
    status = space.get("ResourceQuota", "few").get("status", {})
    return status["hard"].get("pods") if status.get("used") else None


@pytest.mark.parametrize("level", ["restricted", "baseline", "privileged"])
def test_pod_security_is_found_out_where_it_is_told_to_nobody(cluster: Any, level: str) -> None:
    """By a user who may make pods, but may not read the namespace."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    with spaces.own(cluster, {"pod-security.kubernetes.io/enforce": level}, rules) as admin:
        user = spaces.connected(cluster.user, admin.namespace)
        assert access.pod_security(user) == level
        user.close()


def test_what_cannot_be_told_is_no_fault(cluster: Any, api: Api) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
    with spaces.own(cluster, spaces.RESTRICTED, rules) as admin:
        user = spaces.connected(cluster.user, admin.namespace)
        assert access.pod_security(user) is None
        assert access.listed(user, "ResourceQuota") is None
        user.close()
    assert access.has_default_class(api) is None


def test_an_administrator_is_told_of_the_storage_class(admin: Api) -> None:
    assert access.has_default_class(admin) is True


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("10.240.0.1:6443", "127.0.0.1:1"), "the API server does not answer"),
        (('"token": "', '"token": "no-longer-'), "does not accept your credentials"),
        (('"current-context": "okube"', '"current-context": "gone"'), "gone"),
    ],
)
def test_without_a_cluster_it_is_one_line(
    oarlock: Any,
    cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, str],
    said: str,
) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text(cluster.user.read_text().replace(*change))
    monkeypatch.setenv("KUBECONFIG", str(broken))
    done = oarlock("doctor", "--on", "kubernetes")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("failed   cluster")
    assert said in lines[1]


def test_a_context_that_is_not_there_is_one_line(oarlock: Any, cluster: Any) -> None:
    done = oarlock("doctor", "--on", "kubernetes", "--context", "nowhere", "--json")
    assert done.returncode == 1
    assert [check["name"] for check in json.loads(done.stdout)["checks"]] == ["cluster"]
    assert "nowhere" in findings(done)["cluster"]["detail"]


def test_options_of_a_cluster_need_one(oarlock: Any) -> None:
    done = oarlock("doctor", "--namespace", "team")
    assert done.returncode == 2
    assert "go with --on kubernetes" in done.stderr


@pytest.mark.parametrize(
    ("version", "state"),
    [("v1.29.0", "ok"), ("v1.36.3-eks-1", "ok"), ("v1.28.9", "failed"), ("x", "unknown")],
)
def test_an_old_cluster_is_a_fault(version: str, state: str) -> None:
    assert cluster_access._version(access.Greeting(version, 0))["state"] == state


def test_clocks_that_differ_are_told() -> None:
    assert cluster_access._clock(3.0)["state"] == "ok"
    assert "2m00s behind" in str(cluster_access._clock(-120.0)["detail"])
    assert cluster_access._clock(None)["state"] == "unknown"
