"""What only Kubernetes needs to know of a job: what may be written, and what each mistake is told."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from oarlock.errors import JobError
from oarlock.job.model import (
    Claim,
    Duration,
    Job,
    Kubernetes,
    Role,
    SecretUse,
    Size,
    Volume,
    parse,
    schema,
    to_data,
)

PROGRAM = {"program": "train.py"}

EVERYTHING: dict[str, Any] = {
    "context": "kind-kind",
    "namespace": "team-a",
    "image": "registry.example.com:5000/team/train@sha256:" + "0" * 64,
    "pull_policy": "IfNotPresent",
    "pull_secrets": ["one", "two.more"],
    "user": 1234,
    "service_account": "trainer",
    "node_selector": {"kubernetes.io/arch": "arm64", "disk": ""},
    "tolerations": [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 60},
    ],
    "priority_class": "high",
    "scheduler": "volcano",
    "queue": "team-queue",
    "labels": {"team": "a", "example.com/cost": 7, "gone": None, "on": True},
    "annotations": {"example.com/note": "any text, of any kind", "empty": ""},
    "claim": {
        "name": "ours",
        "size": "1Ti",
        "storage_class": "fast",
        "access": "ReadWriteMany",
        "shared": True,
    },
    "volumes": {
        "data": {"path": "/data", "claim": "images", "read_only": True},
        "cache": {"path": "/cache", "size": "5Gi", "storage_class": "fast", "access": "ReadWriteMany"},
        "scratch": {"path": "/scratch", "empty": True, "size": "1Gi", "roles": "worker"},
        "gone": None,
    },
    "secrets": {
        "files": "/etc/files",
        "token": {"env": {"API_TOKEN": "token"}, "roles": ["worker"]},
        "all": {"variables": True},
    },
    "shm": "2Gi",
    "ttl": "1h",
    "pod": {"hostNetwork": False, "dnsConfig": {"options": [{"name": "ndots", "value": "1"}, None]}},
}

VALID: list[dict[str, Any]] = [
    {},
    EVERYTHING,
    dict.fromkeys(EVERYTHING),
    {"user": "image", "claim": "none", "pull_secrets": "one"},
    {"claim": "NONE"},
    {"claim": "mine"},
    {"claim": {"name": "mine", "existing": True, "shared": True}},
    {"claim": {"name": "none", "existing": True}},
    {"claim": {}, "volumes": {}, "secrets": {}, "tolerations": [{"operator": "Exists"}], "labels": {}},
    {"queue": "q", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
    # different roles may have different things in the same place
    {"volumes": {"a": {"path": "/x", "empty": True, "roles": ["worker"]},
                 "b": {"path": "/x", "empty": True, "roles": ["chief"]}}},
]  # fmt: skip


def job(**kubernetes: Any) -> Job:
    return parse({**PROGRAM, "roles": {"chief": 1, "worker": 2}, "kubernetes": kubernetes})


def test_nothing_needs_to_be_said() -> None:
    assert parse(PROGRAM).kubernetes == Kubernetes(
        user=1000,
        claim=Claim(name=None, existing=False, size=Size(10 * 1024**3), access="ReadWriteOnce", shared=False),
        ttl=Duration(24 * 3600),
    )


def test_every_field_is_read() -> None:
    found = job(**EVERYTHING).kubernetes
    assert (found.context, found.namespace, found.user, found.queue) == (
        *("kind-kind", "team-a", 1234, "team-queue"),
    )
    assert found.pull_secrets == ("one", "two.more")
    assert found.tolerations == tuple(EVERYTHING["tolerations"])
    assert found.labels == {"team": "a", "example.com/cost": "7", "on": "true"}
    assert found.annotations == EVERYTHING["annotations"]
    assert found.claim == Claim(
        name="ours", size=Size(1024**4), storage_class="fast", access="ReadWriteMany", shared=True
    )
    assert found.volumes == {
        "data": Volume(path="/data", claim="images", read_only=True),
        "cache": Volume(path="/cache", size=Size(5 * 1024**3), storage_class="fast", access="ReadWriteMany"),
        "scratch": Volume(path="/scratch", empty=True, size=Size(1024**3), roles=("worker",)),
    }
    assert found.secrets == {
        "files": SecretUse(path="/etc/files"),
        "token": SecretUse(env={"API_TOKEN": "token"}, roles=("worker",)),
        "all": SecretUse(variables=True),
    }
    assert (found.shm, found.ttl, found.pod) == (Size(2 * 1024**3), Duration(3600), EVERYTHING["pod"])


def test_a_claim_may_be_a_name_or_none() -> None:
    assert job(claim="mine").kubernetes.claim == Claim(name="mine", existing=True)
    assert job(claim="none").kubernetes.claim is None
    assert job(claim=None).kubernetes.claim == Claim()
    assert Kubernetes(claim=None).claim is None
    assert to_data(job(claim="none"))["kubernetes"] == {"claim": "none"}


def test_a_role_has_its_own_image_and_nodes() -> None:
    written = {"image": "x", "node_selector": {"gpu": True}, "tolerations": [{"key": "gpu"}]}
    roles = parse({**PROGRAM, "roles": {"worker": written}}).roles
    assert roles.worker == Role(image="x", node_selector={"gpu": "true"}, tolerations=({"key": "gpu"},))


@pytest.mark.parametrize("written", VALID)
@pytest.mark.parametrize("full", [False, True])
def test_data_makes_the_same_job(written: dict[str, Any], full: bool) -> None:
    made = job(**written)
    assert parse(to_data(made, full=full)) == made
    validator.validate(to_data(made, full=full))


validator = jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize("written", VALID)
def test_the_schema_accepts_what_a_job_accepts(written: dict[str, Any]) -> None:
    validator.validate({**PROGRAM, "kubernetes": written})


NAME = "lower-case letters, digits, '-' and '.', at most 253 characters"
LABEL = "lower-case letters, digits and '-', at most 63 characters"
VALUE = "expected at most 63 letters, digits, '-', '_' and '.', a letter or a digit first and last"
ROLES = "expected chief, worker, ps or evaluator"
OURS = "Oarlock or Kubernetes sets it; leave it out"
PATH = "expected an absolute path such as /data"
EMPTY = {"path": "/d", "empty": True}

MISTAKES: list[tuple[dict[Any, Any], str]] = [
    ({"imag": "x"}, "imag: no such field; did you mean image?"),
    ({"storage_class": "x"}, "storage_class: no such field; did you mean claim.storage_class?"),
    ({"context": ""}, 'context: expected the name of a context, found ""'),
    ({"namespace": "Team A"}, f'namespace: expected a namespace: {LABEL}, found "Team A"; try team-a'),
    (
        {"namespace": "a" * 64},
        f'namespace: expected a namespace: {LABEL}, found "{"a" * 37}..."; try {"a" * 63}',
    ),
    ({"image": "a b"}, 'image: expected an image such as python:3.11-slim, found "a b"'),
    ({"image": {"tag": "a"}}, "image: expected an image such as python:3.11-slim, found a mapping"),
    (
        {"pull_policy": "IfNotThere"},
        'pull_policy: expected Always, IfNotPresent or Never, found "IfNotThere"; did you mean IfNotPresent?',
    ),
    ({"pull_secrets": 3}, "pull_secrets: expected a list of secrets' names, found 3"),
    ({"pull_secrets": ["a", 3]}, f"pull_secrets.1: expected the name of a secret: {NAME}, found 3"),
    ({"user": 0}, "user: expected 1 or more, found 0; clusters with Pod Security's restricted refuse root"),
    ({"user": -1}, "user: expected 1 or more, found -1"),
    ({"user": 2**31}, "user: expected at most 2147483647, found 2147483648"),
    ({"user": False}, "user: expected a whole number, found false"),
    ({"user": "imgae"}, 'user: expected a whole number, or image, found "imgae"; did you mean image?'),
    ({"user": "root"}, 'user: expected a whole number, or image, found "root"'),
    (
        {"service_account": "A"},
        f'service_account: expected the name of a service account: {NAME}, found "A"; try a',
    ),
    # labels
    ({"labels": ["a"]}, "labels: expected names and values, found a list"),
    ({"labels": {"a b": 1}}, 'labels.a b: expected a name such as team or example.com/team, found "a b"'),
    (
        {"labels": {"a/b/c": 1}},
        'labels.a/b/c: expected a name such as team or example.com/team, found "a/b/c"',
    ),
    ({"labels": {5: 1}}, "labels.5: expected a name such as team or example.com/team, found 5"),
    ({"labels": {"a": "b c"}}, f'labels.a: {VALUE}, found "b c"'),
    ({"labels": {"a": "b" * 64}}, f'labels.a: {VALUE}, found "{"b" * 37}..."'),
    ({"labels": {"a": ["b"]}}, "labels.a: expected text or a number, found a list"),
    ({"labels": {"oarlock.dev/run": "b"}}, f"labels.oarlock.dev/run: {OURS}"),
    ({"labels": {"batch.kubernetes.io/job-name": "b"}}, f"labels.batch.kubernetes.io/job-name: {OURS}"),
    (
        {"annotations": {"app.kubernetes.io/managed-by": "b"}},
        f"annotations.app.kubernetes.io/managed-by: {OURS}",
    ),
    ({"node_selector": {"a": "-"}}, f'node_selector.a: {VALUE}, found "-"'),
    (
        {"queue": "q", "labels": {"kueue.x-k8s.io/queue-name": "p"}},
        "labels.kueue.x-k8s.io/queue-name: queue says q; leave one of them out",
    ),
    # tolerations
    ({"tolerations": {"key": "a"}}, "tolerations: expected a list of tolerations, found a mapping"),
    (
        {"tolerations": ["a"]},
        'tolerations.0: expected key, operator, value, effect and tolerationSeconds, found "a"',
    ),
    (
        {"tolerations": [{"key": "a", "efect": "b"}]},
        "tolerations.0.efect: no such field; did you mean effect?",
    ),
    (
        {"tolerations": [{"key": "a"}, {"key": "b", "tolerationsecond": 5}]},
        "tolerations.1.tolerationsecond: no such field; did you mean tolerationSeconds?",
    ),
    (
        {"tolerations": [{"key": "a", "effect": "noschedule"}]},
        'tolerations.0.effect: expected NoSchedule, PreferNoSchedule or NoExecute, found "noschedule"; '
        "did you mean NoSchedule?",
    ),
    ({"tolerations": [{"key": "a", "value": True}]}, f"tolerations.0.value: {VALUE}, found true"),
    (
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "tolerations.0.value: Exists has no value; leave one of them out",
    ),
    ({"tolerations": [{}]}, "tolerations.0: without a key the operator must be Exists; give one of them"),
    (
        {"tolerations": [{"key": "a", "tolerationSeconds": 5}]},
        "tolerations.0.tolerationSeconds: only with effect: NoExecute",
    ),
    # the claim
    (
        {"claim": "My Claim"},
        f'claim.name: expected the name of a claim: {NAME}, found "My Claim"; try my-claim',
    ),
    (
        {"claim": ["a"]},
        "claim: expected name, existing, size, storage_class, access and shared, found a list",
    ),
    ({"claim": {"existing": True}}, "claim.existing: which one? give its name"),
    (
        {"claim": {"name": "a", "existing": True, "size": "1Gi"}},
        "claim.size: a exists and has its size; leave one of them out",
    ),
    (
        {"claim": {"name": "a", "existing": True, "storage_class": "b"}},
        "claim.storage_class: a exists and has its class; leave one of them out",
    ),
    ({"claim": {"shared": True}}, "claim.shared: needs access: ReadWriteMany, found ReadWriteOnce"),
    (
        {"claim": {"access": "ReadWriteMore"}},
        'claim.access: expected ReadWriteOnce, ReadWriteMany or ReadWriteOncePod, found "ReadWriteMore"; '
        "did you mean ReadWriteOnce?",
    ),
    # volumes
    ({"volumes": ["a"]}, "volumes: expected names of volumes and their fields, found a list"),
    ({"volumes": {"A": EMPTY}}, f'volumes.A: expected the name of a volume: {LABEL}, found "A"; try a'),
    ({"volumes": {3: EMPTY}}, f"volumes.3: expected the name of a volume: {LABEL}, found 3"),
    (
        {"volumes": {"oarlock-x": EMPTY}},
        "volumes.oarlock-x: names that start with oarlock are reserved; choose another",
    ),
    ({"volumes": {"a": {"claim": "b"}}}, f"volumes.a.path: {PATH}, found nothing"),
    ({"volumes": {"a": {"path": None, "claim": "b"}}}, f"volumes.a.path: {PATH}, found nothing"),
    ({"volumes": {"a": {"path": "d", "claim": "b"}}}, f'volumes.a.path: {PATH}, found "d"; did you mean /d?'),
    ({"volumes": {"a": {"path": "a\nb", "claim": "b"}}}, f'volumes.a.path: {PATH}, found "a\\nb"'),
    ({"volumes": {"a": {"path": "/", "claim": "b"}}}, f'volumes.a.path: {PATH}, found "/"'),
    ({"volumes": {"a": {"path": "/a/../b", "claim": "b"}}}, f'volumes.a.path: {PATH}, found "/a/../b"'),
    ({"volumes": {"a": {"path": "/a:b", "claim": "b"}}}, f'volumes.a.path: {PATH}, found "/a:b"'),
    ({"volumes": {"a": {"path": "/d"}}}, "volumes.a: nothing to mount; give one of claim, size and empty"),
    (
        {"volumes": {"a": {"path": "/d", "claim": "b", "size": "1Gi"}}},
        "volumes.a.size: claim is given too; give one of claim, size and empty",
    ),
    (
        {"volumes": {"a": {**EMPTY, "claim": "b"}}},
        "volumes.a.empty: claim is given too; give one of claim, size and empty",
    ),
    (
        {"volumes": {"a": {**EMPTY, "storage_class": "b"}}},
        "volumes.a.storage_class: only for a new claim, with size",
    ),
    (
        {"volumes": {"a": {**EMPTY, "access": "ReadWriteMany"}}},
        "volumes.a.access: only for a claim; an empty folder belongs to one pod",
    ),
    (
        {"volumes": {"a": {**EMPTY, "read_only": True}}},
        "volumes.a.read_only: nothing can ever be in an empty folder that is read-only",
    ),
    (
        {"volumes": {"a": {**EMPTY, "roles": ["worker", "wrker"]}}},
        f'volumes.a.roles.1: {ROLES}, found "wrker"; did you mean worker?',
    ),
    ({"volumes": {"a": {**EMPTY, "roles": "ps"}}}, "volumes.a.roles: the job has no ps"),
    ({"volumes": {"a": EMPTY, "b": EMPTY}}, "volumes.b.path: a is mounted at /d too"),
    ({"volumes": {"a": EMPTY}, "secrets": {"b": "/d/"}}, "secrets.b.path: a is mounted at /d/ too"),
    # secrets
    ({"secrets": {"A": "/a"}}, f'secrets.A: expected the name of a secret: {NAME}, found "A"; try a'),
    ({"secrets": {"a": "b"}}, f'secrets.a.path: {PATH}, found "b"; did you mean /b?'),
    (
        {"secrets": {"a": {"roles": "worker"}}},
        "secrets.a: not used; give at least one of path, variables and env",
    ),
    (
        {"secrets": {"a": {"env": {"A B": "c"}}}},
        'secrets.a.env.A B: expected a name for an environment variable, found "A B"',
    ),
    ({"secrets": {"a": {"env": {"B": "c/d"}}}}, 'secrets.a.env.B: expected a key of the secret, found "c/d"'),
    (
        {"secrets": {"a": {"env": {"RANK": "c"}}}},
        "secrets.a.env.RANK: Oarlock sets it for each task; leave it out",
    ),
    ({"secrets": {"a": {"env": {"TAKEN": "c"}}}}, "secrets.a.env.TAKEN: the job's env gives it too"),
    ({"secrets": {"a": {"env": {"B": "c"}}, "b": {"env": {"B": "c"}}}}, "secrets.b.env.B: a gives it too"),
    ({"secrets": {"a": {"path": "/a", "roles": ["ps"]}}}, "secrets.a.roles: the job has no ps"),
    # the rest
    ({"shm": "1gb"}, 'shm: expected a size such as 4Gi, 512Mi or 2G, found "1gb"; did you mean 1G?'),
    ({"ttl": "none"}, 'ttl: expected a duration such as 90s, 10m or 1h30m, found "none"'),
    ({"pod": "a"}, 'pod: expected a mapping, found "a"'),
]


@pytest.mark.parametrize(("written", "message"), MISTAKES, ids=[message[:60] for _, message in MISTAKES])
def test_a_mistake_is_told_in_one_line(written: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as refused:
        parse({**PROGRAM, "env": {"TAKEN": 1}, "kubernetes": written})
    assert str(refused.value) == f"kubernetes.{message}"


# How fields go together is beyond a schema.
TOGETHER = (
    *("leave one", "one of", "which one", "only", "needs access", "stays empty", "mounted at", "has no"),
    *("gives it", "leave it out"),
)


@pytest.mark.parametrize(
    "written",
    [
        written
        for written, message in MISTAKES
        if not any(part in message for part in TOGETHER)
        and "found 5" not in message
        and "volumes.3" not in message
    ],
)
def test_the_schema_refuses_what_a_job_refuses(written: dict[str, Any]) -> None:
    assert not validator.is_valid({**PROGRAM, "kubernetes": _with_text_keys(written)})


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _with_text_keys(item) for name, item in value.items()}
    return value
