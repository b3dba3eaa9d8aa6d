"""A cluster that does not let us in, or does not answer, is told in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from tests.support.clusters import Cluster
from tests.support.kubernetes.causes import broken, plain_job, plain_pod
from tests.support.kubernetes.driving import Named
from tests.support.waiting import eventually

POD = plain_pod("diag-never")
JOB = plain_job("diag-never", POD)


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
def test_an_api_server_that_is_away_is_told(cluster: Cluster, api: Api) -> None:
    away = "the cluster's API server cannot be reached: "
    api.all("Job")
    with broken(cluster, ["stop-api"], ["start-api"]):
        said = []
        for _ in range(12):  # each connection that was open has its own end
            with pytest.raises(ApiError) as refused:
                diagnose.find_problems(api, Named("diag-any"))
            said.append(diagnose.explain(refused.value))
    assert all(problem.what.startswith(away) for problem in said)
    problem = said[-1]
    assert problem.what == away + "connection refused"
    assert problem.fix.endswith("runs on the cluster continue meanwhile")
    eventually(lambda: _answers(api), "the API server")


def _answers(api: Api) -> bool:
    try:
        return api.all("Job") is not None
    except ApiError:
        return False
