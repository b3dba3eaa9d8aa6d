"""Other people's rules: budgets for disruptions, evictions, priorities, schedulers and users of their own.

Quotas, LimitRanges and Pod Security are in test_diagnose_refusals.py, side-cars in test_recovery.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, ROLE, Object, selecting
from tests.support.clusters import Cluster
from tests.support.commands import Command
from tests.support.kubernetes.bookkeeping import SUMS, Books
from tests.support.kubernetes.causes import evict, plain_pod, thing
from tests.support.kubernetes.driving import all_gpus, state_of, written
from tests.support.kubernetes.small import SMALL_WORDS, start_detached
from tests.support.kubernetes.spaces import RESTRICTED, own
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

TOTAL = 40
POLICIES = "apis/admissionregistration.k8s.io/v1"


def start_sums(oarlock: Command, tmp_path: Path, name: str, *settings: str, last: int = 2) -> None:
    """Start SUMS, which ends in the generation `last`."""
    program = written(tmp_path / name, SUMS)
    args = (str(TOTAL), "1000", str(last))
    start_detached(oarlock, name, program, *args, settings=[f"name={name}", *settings])


def pod(api: Api, name: str, which: str) -> Object:
    found = api.all("Pod", f"{selecting(name)},{ROLE},{which}")
    return next(one for one in found if "deletionTimestamp" not in one["metadata"])


@only_in_soak  # test_chaos.py evicts a pod, and is refused another by its budget
def test_a_disruption_that_a_budget_allows_costs_no_step(
    oarlock: Command, api: Api, admin: Api, tmp_path: Path, ended: list[str]
) -> None:
    """As a drain does it, pod by pod. Who drains is refused a second one until the first is replaced."""
    name = "rule-budget"
    ended.append(name)
    start_sums(oarlock, tmp_path, name)
    books = Books(admin, name, name)
    eventually(lambda: books.is_stepping(1), "the first steps")
    budget = {
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"oarlock.dev/run": name}}},
    }
    path = f"apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets"
    with thing(admin, path, budget):

        def allowed() -> int:
            told = admin.http.get(f"{path}/{name}").json().get("status", {})
            return int(told.get("disruptionsAllowed", 0))

        eventually(allowed, "a disruption that is allowed")
        leader = pod(api, name, LEAD)["metadata"]["name"]
        assert evict(api, pod(api, name, f"!{LEAD}")["metadata"]["name"]) == 201
        assert evict(api, leader) == 429
        done = oarlock("attach", name)
    assert done.returncode == 0, done.stdout + done.stderr
    reasons = [event["reason"] for event in books.events if event["kind"] == "restart"]
    assert reasons == ["worker-1 left: it was asked to leave"]
    assert (books.generation, books.restarts) == (2, 0)
    books.audit(lost=0)
    books.verdict()


@only_in_soak
def test_work_of_higher_priority_goes_first_and_the_run_goes_on_after_it(
    oarlock: Command, api: Api, admin: Api, tmp_path: Path, ended: list[str]
) -> None:
    name = "rule-priority"
    ended.append(name)
    with all_gpus():
        start_sums(oarlock, tmp_path, name, "roles.worker.gpu=2")
        books = Books(admin, name, name)
        eventually(lambda: books.is_stepping(1), "the first steps")
        priority = {"metadata": {"name": name}, "value": 1000}
        with thing(admin, "apis/scheduling.k8s.io/v1/priorityclasses", priority):
            wanted = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
            urgent = plain_pod(f"{name}-urgent", priorityClassName=name, container=wanted)
            del urgent["metadata"]["labels"]  # nobody's but the administrator's
            eventually(lambda: _is_created(api, urgent), "the priority class")
            try:
                eventually(lambda: _is_up(api, f"{name}-urgent"), "the other work")
                eventually(lambda: "lack 2 GPUs free" in (state_of(name).problem or ""), "word of it")
            finally:
                api.delete("Pod", f"{name}-urgent")
        done = oarlock("attach", name)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (books.generation, books.restarts) == (2, 0)
    books.audit(lost=0)
    books.verdict()


@only_in_soak
def test_another_scheduler_places_the_pods(
    oarlock: Command, api: Api, admin: Api, tmp_path: Path, ended: list[str]
) -> None:
    """Which here is us. That there is none is told after 30 s: test_diagnose_pure.py."""
    name = "rule-scheduler"
    ended.append(name)
    start_sums(oarlock, tmp_path, name, "kubernetes.scheduler=ours", last=1)

    def waiting() -> list[Object]:
        found = api.all("Pod", f"{selecting(name)},{ROLE}")
        return [one for one in found if "nodeName" not in one["spec"]] if len(found) == 2 else []

    for one in eventually(waiting, "pods that nobody has placed"):
        assert one["spec"]["schedulerName"] == "ours"
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
        binding = {"metadata": {"name": one["metadata"]["name"]}, "target": target}
        path = f"api/v1/namespaces/{api.namespace}/pods/{one['metadata']['name']}/binding"
        assert admin.http.post(path, json=binding).is_success
    done = oarlock("attach", name)
    assert done.returncode == 0, done.stdout + done.stderr
    Books(admin, name, name).verdict(TOTAL)


@contextmanager
def users_of_its_own(cluster: Cluster) -> Iterator[Api]:
    """A namespace as OpenShift has them: pods that name a user are refused, and the others get one."""
    with own(cluster, RESTRICTED) as admin:
        name = admin.namespace
        here = {"matchLabels": {"kubernetes.io/metadata.name": name}}
        pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        forbidden = "has(object.spec.securityContext) && has(object.spec.securityContext.runAsUser)"
        said = "runAsUser must not be set: this namespace has users of its own"
        deny = {
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [pods]},
                "validations": [{"expression": f"!({forbidden})", "message": said}],
            },
        }
        bound = {
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": here},
            },
        }
        with (
            thing(admin, f"{POLICIES}/validatingadmissionpolicies", deny),
            thing(admin, f"{POLICIES}/validatingadmissionpolicybindings", bound),
        ):
            eventually(lambda: _refuses(admin), "a policy that is in force")
            yield admin


def test_a_namespace_whose_users_are_its_own(oarlock: Command, cluster: Cluster, tmp_path: Path) -> None:
    """The image here has no user, so that what OpenShift would add is said under kubernetes.pod."""
    with users_of_its_own(cluster) as there:
        program = tmp_path / "train.py"
        program.write_text("import os; print('as', os.getuid())")
        words = ["run", "--on", "kubernetes", "--namespace", there.namespace, *SMALL_WORDS]
        done = oarlock(*words, "--name", "rule-user", str(program))
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            f"oarlock: the cluster's policy {there.namespace} refuses it: runAsUser must not be set: this"
            " namespace has users of its own; let it choose the user: --set kubernetes.user=image"
        )
        assert not there.all("Job", "")
        added = "kubernetes.pod.containers=[{name: main, securityContext: {runAsUser: 1000650000}}]"
        words += ["--set", "kubernetes.user=image", "--set", added]
        done = oarlock(*words, "--name", "rule-user", str(program))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "worker-0 | as 1000650000" in done.stdout
        assert oarlock("delete", "--volumes", "rule-user").returncode == 0


def _refuses(admin: Api) -> bool:
    answer = admin.http.post(f"api/v1/namespaces/{admin.namespace}/pods?dryRun=All", json=plain_pod("probe"))
    return "users of its own" in answer.text


def _is_created(api: Api, manifest: Object) -> bool:
    """The API server looks its priority classes up in a copy that lags behind."""
    try:
        return bool(api.create(manifest))
    except ApiError as error:
        if "no PriorityClass" not in error.message:
            raise
        return False


def _is_up(api: Api, name: str) -> bool:
    return bool(api.get("Pod", name)["status"].get("phase") == "Running")
