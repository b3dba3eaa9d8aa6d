"""What a cluster refuses is told in one line, before anything runs or at the Job whose pods it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api import names
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Object
from tests.support.clusters import Cluster
from tests.support.kubernetes.causes import (
    limit_range,
    namespace,
    plain_job,
    plain_pod,
    quota,
    start,
    told,
    users_namespace,
)

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
        "the cluster rejects it: spec.activeDeadlineSeconds: Invalid value: 0: "
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
        "quota small of the namespace requires every pod to set its limits.cpu",
        "set it: --set 'kubernetes.pod={containers: [{name: main, resources: {limits: {cpu: 2}}}]}'",
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
    with users_namespace(cluster, admin, api) as there:
        yield there


@pytest.mark.parametrize("cause", REFUSED)
def test_what_admission_refuses_is_told_before_anything_is_created(
    cause: str, place: Api, tmp_path: Path
) -> None:
    sets, what, fix = REFUSED[cause]
    with pytest.raises(ApiError) as refused:
        start(place, tmp_path, "diag-refused", *sets)
    assert diagnose.explain(refused.value)[:2] == (what, fix)
    assert place.all("Job", names.selecting("diag-refused")) == []


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
        problem = told(there, run, " and ")
        # Mostly the leader is first, but two Jobs make their pods at the same time.
        [there_is] = there.all("Pod", names.selecting(run))
        number = int(labels_of(there_is)[names.INDEX]) + (names.LEAD not in labels_of(there_is))
        refused = " and ".join(f"worker-{other}" for other in range(3) if other != number)
        assert problem.what == (
            f"{refused}: quota small of the namespace does not allow it: pods 1 of 1 used, 1 asked for"
        )
        assert problem.fix == ("end other runs (oarlock ps lists them), or ask its administrator for more")
        assert problem.who == refused


def labels_of(pod: Object) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"]["labels"]
    return found


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
