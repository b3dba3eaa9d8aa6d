"""What the test cluster cannot bring about, judged from objects in the form that Kubernetes documents."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock.engines.kubernetes.api import names
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.claims import claim_pod
from oarlock.engines.kubernetes.diagnose.api_errors import explain
from oarlock.engines.kubernetes.diagnose.rules import problems_in
from oarlock.engines.kubernetes.manifests import groups
from oarlock.job.model import parse

Object = dict[str, Any]

BORN = "2026-01-01T00:00:00Z"
NOW = 1767225605.0  # five seconds later
RUNNING = {"running": {"startedAt": BORN}}


def test_a_pod_that_is_being_created_is_no_problem() -> None:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    young = [pod(0, phase="Pending"), pod(1, phase="Pending", state=waiting)]
    unscheduled = pod(2, phase="Pending")
    unscheduled["status"]["conditions"] = []
    assert problems_in([job(3)], [*young, unscheduled], [], [], now=NOW) == []
    assert problems_in([job(3)], [], [], [], now=NOW) == []


def test_a_claim_that_was_just_made_may_take_its_time() -> None:
    waiting = pod(0, phase="Pending", claim="data")
    waiting["status"]["conditions"] = [
        unplaced("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found")
    ]
    claim = {"metadata": meta("data"), "status": {"phase": "Pending"}, "spec": {}}
    provisioner = "Waiting for a volume to be created either by the external provisioner 'nfs.example' or"
    events = [event(claim, "ExternalProvisioning", provisioner)]
    assert problems_in([job(1)], [waiting], events, [claim], now=NOW) == []
    (problem,) = problems_in([job(1)], [waiting], events, [claim], now=NOW + 60)
    assert problem.what == "worker-0: claim data waits for a volume that nfs.example does not make"
    assert problem.fix.startswith("ask the administrator, or choose another class")


def test_a_claim_without_a_class_in_a_cluster_without_a_default() -> None:
    waiting = pod(0, phase="Pending", claim="data")
    waiting["status"]["conditions"] = [unplaced("pod has unbound immediate PersistentVolumeClaims")]
    claim = {"metadata": meta("data"), "status": {"phase": "Pending"}, "spec": {}}
    events = [
        event(
            claim,
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        )
    ]
    (problem,) = problems_in([job(1)], [waiting], events, [claim], now=NOW)
    assert problem.what == "worker-0: claim data names no storage class and the cluster has no default"


def test_a_claim_that_another_node_has() -> None:
    waiting = pod(0, phase="Pending", state={"waiting": {"reason": "ContainerCreating"}}, claim="data")
    text = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) other-lead-0-abcde'
    (problem,) = problems_in([job(1)], [waiting], [event(waiting, "FailedAttachVolume", text)], [], now=NOW)
    assert problem.what == "worker-0: claim data is in use on another node, by other-lead-0-abcde"
    assert problem.fix == (
        "end the run that uses it (oarlock ps), wait 6 minutes if its node was lost, or use ReadWriteMany"
    )


def test_a_claim_that_a_standing_tensorboard_has_on_another_node() -> None:
    waiting = pod(0, phase="Pending", state={"waiting": {"reason": "ContainerCreating"}}, claim="data")
    text = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) mnist-tensorboard-5f6-x2x'
    (problem,) = problems_in([job(1)], [waiting], [event(waiting, "FailedAttachVolume", text)], [], now=NOW)
    assert problem.what.startswith(
        "worker-0: claim data is in use on another node, by mnist-tensorboard-5f6-x2x"
    )
    assert problem.fix == "`oarlock tensorboard --delete RUN` removes that"


@pytest.mark.parametrize(
    ("message", "what", "fix"),
    [
        (
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi.",
            "worker-0: node node-7 was low on disk and evicted it",
            "keep less in /tmp, or move it to a volume (kubernetes.volumes)",
        ),
        (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 9Mi.",
            "worker-0: node node-7 was low on memory and evicted it",
            "ask for what it uses with --set roles.worker.memory=...",
        ),
        (
            'Usage of EmptyDir volume "oarlock-work" exceeds the limit "1Gi".',
            "worker-0: was evicted from node node-7: "
            'Usage of EmptyDir volume "oarlock-work" exceeds the limit "1Gi".',
            "keep less in its folders, or allow more",
        ),
    ],
)
def test_an_eviction_by_the_node(message: str, what: str, fix: str) -> None:
    evicted = pod(0, phase="Failed")
    evicted["status"] |= {"reason": "Evicted", "message": message}
    assert problems_in([job(1)], [evicted], [], [], now=NOW) == [(what, fix, "worker-0")]


def test_a_program_that_takes_the_agent_with_it_when_memory_ends() -> None:
    """cgroup v2: the kernel kills all of the container."""
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": BORN}}
    again = pod(1, state=RUNNING, last=killed, restarts=1)
    (problem,) = problems_in([job(2)], [pod(0, state=RUNNING), again], [], [], now=NOW)
    assert problem.what == "worker-1: was killed because it used more than its 1Gi of memory"
    assert problem.fix == "give it more with --set roles.worker.memory=2Gi, or use smaller batches"
    assert problems_in([job(2)], [pod(0, state=RUNNING), again], [], [], now=NOW + 3600) == [], "long ago"


def test_a_childs_end_for_want_of_memory_is_not_the_runs() -> None:
    """Kubernetes marks the container, which went on and succeeded."""
    marked = {"terminated": {"exitCode": 0, "reason": "OOMKilled", "message": '{"result": "succeeded"}'}}
    done = job(1, complete=True)
    assert problems_in([done], [pod(0, phase="Succeeded", state=marked)], [], [], now=NOW) == []


def test_a_node_that_does_not_answer_and_then_is_lost() -> None:
    silent = pod(0, state=RUNNING)
    silent["status"]["conditions"].append({"type": "Ready", "status": "False"})
    (problem,) = problems_in([job(1)], [silent], [], [], now=NOW)
    assert problem.what == "worker-0: its node node-7 does not answer"
    lost = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    silent["status"]["conditions"].append(lost)
    silent["metadata"]["deletionTimestamp"] = BORN
    next_one = pod(0, phase="Pending", born="2026-01-01T00:00:03Z")
    (problem,) = problems_in([job(1)], [silent, next_one], [], [], now=NOW)
    assert problem.what == "worker-0: its node node-7 is lost"
    next_one["status"]["phase"] = "Running"
    assert problems_in([job(1)], [silent, next_one], [], [], now=NOW) == []


def test_last_words_are_a_persons_and_the_last() -> None:
    said = "Traceback (most recent call last):\n  File x\nValueError: no such seat\n::oarlock {}\n"
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": said, "finishedAt": BORN}}
    looping = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    (problem,) = problems_in([job(1)], [pod(0, state=looping, last=ended, restarts=4)], [], [], now=NOW)
    assert problem.what == "worker-0: its agent ends with code 1 repeatedly: ValueError: no such seat"


def test_a_single_restart_is_no_problem() -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": BORN}}
    assert problems_in([job(1)], [pod(0, state=RUNNING, last=ended, restarts=1)], [], [], now=NOW) == []


def test_the_most_important_first_and_equal_ones_as_one() -> None:
    lacking = unplaced(
        "0/9 nodes are available: 8 Insufficient cpu, 1 node(s) were unschedulable. preemption: x"
    )
    workers = [pod(index, phase="Pending", group="worker", offset=1) for index in range(39)]
    for worker in workers:
        worker["status"]["conditions"] = [lacking]
    leader = pod(0, phase="Pending", state={"waiting": {"reason": "ErrImageNeverPull"}})
    image, place = problems_in([job(1), job(39, "worker")], [*workers, leader], [], [], now=NOW)
    assert image.who == "worker-0"
    assert place.who == "worker-1 and 38 more"
    assert place.what == (
        "worker-1 and 38 more: no node fits: 8 of 9 lack 2 cpu free; 1 of 9 take no new pods (cordoned)"
    )


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        (
            "1 Insufficient cpu, 1 node(s) were unschedulable",
            "wait until other work ends, or ask for less with --set roles.worker.cpu=..., "
            "or wait until nodes take pods again",
        ),
        (
            "1 Insufficient cpu, 1 Too many pods",
            "ask for less with --set roles.worker.cpu=..., or wait until other work ends",
        ),
        ("2 node(s) were unschedulable", "wait until nodes take pods again"),
    ],
)
def test_no_advice_is_given_twice(why: str, fix: str) -> None:
    waiting = pod(0, phase="Pending")
    message = (
        f"0/2 nodes are available: {why}. preemption: 0/2 nodes are available: 2 No preemption victims found"
    )
    waiting["status"]["conditions"] = [unplaced(message)]
    (problem,) = problems_in([job(1)], [waiting], [], [], now=NOW)
    assert problem.fix == fix


def test_no_line_is_longer_than_a_screen() -> None:
    text = "0/9 nodes are available: " + ", ".join(
        f"1 node(s) had untolerated taint {{team: t{n}}}" for n in range(9)
    )
    waiting = pod(0, phase="Pending")
    waiting["status"]["conditions"] = [unplaced(text)]
    (problem,) = problems_in([job(1)], [waiting], [], [], now=NOW)
    assert len(problem.what) <= 200
    assert len(problem.fix) <= 200
    assert "\n" not in problem.what


def test_a_role_of_several_groups_has_no_one_value_to_set() -> None:
    waiting = pod(0, phase="Pending", group="worker-2")
    waiting["status"]["conditions"] = [unplaced("0/2 nodes are available: 2 Insufficient cpu. preemption: x")]
    (problem,) = problems_in([job(1), job(1, "worker-2")], [pod(0, state=RUNNING), waiting], [], [], now=NOW)
    assert problem.fix == "ask for less with cpu of its group under roles.worker"


def test_what_the_ingest_asks_for_has_to_shrink_too() -> None:
    wanted = {
        "program": "t.py",
        "roles": {"worker": {"cpu": 1}, "ps": 1},
        "ingest": {"program": "i.py", "cpu": 2},
    }
    lead, ps = (
        claim_pod.template_of("r", parse(wanted), group)["metadata"]["annotations"]
        for group in groups.of(parse(wanted))
    )
    assert (lead[names.BY_INGEST], names.BY_INGEST in ps) == ("cpu memory", False)
    waiting = pod(0, phase="Pending")
    waiting["status"]["conditions"] = [unplaced("0/2 nodes are available: 2 Insufficient cpu. preemption: x")]
    waiting["metadata"]["annotations"] = lead
    (problem,) = problems_in([job(1)], [waiting], [], [], now=NOW)
    assert problem.fix == "ask for less with --set roles.worker.cpu=... and --set ingest.cpu=..."


def test_a_scheduler_that_is_not_there() -> None:
    waiting = pod(0, phase="Pending")
    waiting["spec"]["schedulerName"] = "volcano"
    waiting["status"]["conditions"] = []
    (problem,) = problems_in([job(1)], [waiting], [], [], now=NOW + 60)
    assert problem.what == "worker-0: no scheduler has looked at it: is there one called volcano?"


def test_a_submission_that_died_half_way() -> None:
    half = job(1)
    half["spec"]["suspend"] = True
    assert problems_in([half], [], [], [], now=NOW) == []
    (problem,) = problems_in([half], [], [], [], now=NOW + 60)
    assert problem.what == "the run was never started: the command that sent it did not finish"
    assert problem.fix == "oarlock delete r, and run it again"


@pytest.mark.parametrize(
    ("error", "what", "fix"),
    [
        (
            ApiError(0, "Unreachable", "the API server does not answer (timed out)"),
            "the cluster's API server cannot be reached: no answer in time",
            "check network and VPN",
        ),
        (
            ApiError(
                0, "Unreachable", "the API server does not answer (Server disconnected without sending)"
            ),
            "the cluster's API server cannot be reached: it ended the connection",
            "check network and VPN",
        ),
        (
            ApiError(401, "Unauthorized", "exec: aws: command not found"),
            "no credentials for the cluster: exec: aws: command not found",
            "log in to the cluster again",
        ),
        (
            ApiError(409, "AlreadyExists", 'jobs.batch "mnist-abcd-lead" already exists'),
            "there is already a job mnist-abcd-lead",
            "choose another --name",
        ),
        (
            ApiError(
                403,
                "Forbidden",
                'pods is forbidden: User "u" cannot list resource "pods" in API group "" in the '
                'namespace "n"',
            ),
            "you may not list pods in namespace n",
            "ask its administrator for the role view",
        ),
        (
            ApiError(
                403,
                "Forbidden",
                'pods "x" is forbidden: unable to validate against any security context constraint: []',
            ),
            "OpenShift gives each namespace its own users, and this user is not one of them",
            "let it choose the user: --set kubernetes.user=image",
        ),
        (
            ApiError(
                403,
                "Forbidden",
                'admission webhook "policy.example" denied the request: label team is missing',
            ),
            "the cluster's policy policy.example refuses it: label team is missing",
            "do as it says under kubernetes.labels",
        ),
        (
            ApiError(
                422,
                "Invalid",
                "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'teams' with binding 'all' "
                "denied request: label team is missing",
            ),
            "the cluster's policy teams refuses it: label team is missing",
            "do as it says under kubernetes.labels",
        ),
        (
            ApiError(
                422, "Invalid", 'ConfigMap "x" is invalid: []: Too long: may not be more than 1048576 bytes'
            ),
            "the program's folder is too large for the cluster",
            "list what it does not need in .oarlockignore",
        ),
        (
            ApiError(503, "ServiceUnavailable", "etcdserver: request timed out"),
            "the API server cannot answer now: etcdserver: request timed out",
            "try again in a moment",
        ),
    ],
)
def test_an_answer_of_the_api_servers(error: ApiError, what: str, fix: str) -> None:
    problem = explain(error)
    assert problem.what == what
    assert problem.fix.startswith(fix)


def meta(name: str, born: str = BORN, **marks: str) -> Object:
    return {"name": name, "uid": f"uid-{name}", "creationTimestamp": born, "labels": marks}


def job(count: int, group: str = "lead", complete: bool = False) -> Object:
    marks = {names.RUN: "r", **({names.LEAD: "true"} if group == "lead" else {})}
    container = {"name": "main", "image": "i"}
    template = {"metadata": {"labels": {names.ROLE: "worker"}}, "spec": {"containers": [container]}}
    return {
        "metadata": meta(f"r-{group}", **marks),
        "spec": {"completions": count, "parallelism": count, "template": template},
        "status": {"conditions": [{"type": "Complete", "status": "True"}] if complete else []},
    }


def pod(
    index: int,
    *,
    phase: str = "Running",
    group: str = "lead",
    offset: int = 0,
    state: Object | None = None,
    last: Object | None = None,
    restarts: int = 0,
    claim: str | None = None,
    born: str = BORN,
) -> Object:
    marks = {
        names.RUN: "r",
        names.ROLE: "worker",
        names.INDEX: str(index),
        "batch.kubernetes.io/job-name": f"r-{group}",
    }
    container = {
        "name": "main",
        "image": "i",
        "env": [{"name": "OARLOCK_SEAT_OFFSET", "value": str(offset)}],
        "resources": {"requests": {"cpu": "2000m", "memory": "1088Mi"}, "limits": {"memory": "1088Mi"}},
    }
    volumes: list[Object] = [{"name": "oarlock-shm", "emptyDir": {"sizeLimit": "64Mi"}}]
    if claim:
        volumes.append({"name": "oarlock-store", "persistentVolumeClaim": {"claimName": claim}})
    status = {"name": "main", "state": state, "lastState": last or {}, "restartCount": restarts}
    return {
        "metadata": meta(f"r-{group}-{index}-{born}", born, **marks),
        "spec": {"nodeName": "node-7", "containers": [container], "volumes": volumes},
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [status] if state else [],
        },
    }


def unplaced(message: str) -> Object:
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}


def event(thing: Object, reason: str, message: str) -> Object:
    of = {"name": thing["metadata"]["name"], "uid": thing["metadata"]["uid"]}
    return {"metadata": meta("e"), "involvedObject": of, "reason": reason, "message": message}
