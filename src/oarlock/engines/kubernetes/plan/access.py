"""What a cluster allows this user to do, checked one by one. Creates nothing.

What the server does not say is None, which is an answer too: `edit` may not list storage classes, and no
server says whether its nodes can pull an image.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import MANAGED, Object

OLDEST = (1, 29)
_LEVEL = "pod-security.kubernetes.io/enforce"
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


class Need(NamedTuple):
    """The use of one resource: each of Kubernetes' verbs, and Oarlock's verbs that need it."""

    resource: str
    group: str
    verbs: dict[str, str]
    is_vital: bool = True  # no run works without it

    @property
    def name(self) -> str:
        """The resource as RBAC errors write it: `jobs.batch`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


_MADE = {"create": "run", "list": "delete", "deletecollection": "delete"}
_STANDING = {"create": "tensorboard --deploy", "list": "delete", "delete": "tensorboard --delete"}
_AROUND = {"create": "serve", "list": "delete", "patch": "serve", "delete": "delete"}
NEEDS = (
    Need(
        "jobs",
        "batch",
        {
            "create": "run",
            "get": "status",
            "list": "run, status, stop, delete",
            "patch": "run, stop, scale",
            "delete": "run, delete",
            "deletecollection": "delete",
        },
    ),
    Need(
        "pods",
        "",
        {
            "create": "run, plan, pull",
            "get": "pull",
            "list": "run, status, logs, attach",
            "watch": "run, logs, attach",
            "patch": "run, attach",
            "delete": "stop, delete, pull",
            "deletecollection": "delete",
        },
    ),
    Need("configmaps", "", _MADE),
    Need("secrets", "", _MADE),
    Need("services", "", {"create": "run", "list": "delete", "delete": "delete"}),
    Need("networkpolicies", "networking.k8s.io", _MADE),
    Need(
        "persistentvolumeclaims",
        "",
        {"create": "run", "get": "plan", "list": "delete", "delete": "delete --volumes"},
    ),
    Need("pods/log", "", {"get": "run, logs, attach"}),
    Need("pods/exec", "", {"get": "stacks, pull", "create": "stacks, pull"}, is_vital=False),
    Need("pods/eviction", "", {"create": "chaos"}, is_vital=False),
    Need(
        "deployments",
        "apps",
        {
            "create": "serve, tensorboard --deploy",
            "get": "serve",
            "list": "delete",
            "patch": "serve, stop, scale",
            "delete": "delete, tensorboard --delete",
        },
        is_vital=False,
    ),
    Need("horizontalpodautoscalers", "autoscaling", _AROUND, is_vital=False),
    Need("poddisruptionbudgets", "policy", _AROUND, is_vital=False),
    Need("ingresses", "networking.k8s.io", _STANDING, is_vital=False),
    Need("events", "", {"list": "run, status"}, is_vital=False),
    Need("resourcequotas", "", {"list": "plan"}, is_vital=False),
    Need("limitranges", "", {"list": "doctor"}, is_vital=False),
)


class Greeting(NamedTuple):
    """What the server tells any client."""

    version: str
    ahead: float | None  # seconds that the server's clock is ahead of ours

    @property
    def is_new_enough(self) -> bool | None:
        """Whether Oarlock supports this version; None if it cannot be read."""
        major, _, minor = self.version.lstrip("v").partition(".")
        try:
            return (int(major), int(minor.partition(".")[0])) >= OLDEST
        except ValueError:
            return None


def greet(api: Api) -> Greeting:
    """The server's version and clock. Raises ApiError; `known_user` says whether it accepts this user."""
    before = time.time()
    answer = api.send("GET", "version")
    now = (before + time.time()) / 2
    ahead: float | None
    try:
        # The header has whole seconds, rounded down.
        ahead = parsedate_to_datetime(answer.headers["Date"]).timestamp() + 0.5 - now
    except (KeyError, ValueError, TypeError):
        ahead = None
    return Greeting(str(answer.json().get("gitVersion", "")), ahead)


def lacking(api: Api, need: Need) -> list[str]:
    """The verbs of Kubernetes that this user may not use on the resource."""
    resource, _, below = need.resource.partition("/")
    return [verb for verb in need.verbs if not api.review(verb, need.group, resource, below)]


def pod_security(api: Api) -> str | None:
    """The Pod Security level: by the namespace's label, else by a dry run."""
    try:
        namespace = api.raw(f"api/v1/namespaces/{api.namespace}")
        label = (namespace["metadata"].get("labels") or {}).get(_LEVEL)
        if label is not None:
            return str(label)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
    for pod in (_probe(), _probe(hostNetwork=True)):
        refused_by = _refused_by(api, pod)
        if refused_by != "":
            return refused_by
    return "privileged"


def has_default_class(api: Api) -> bool | None:
    """Whether a claim without a storage class gets one; None if this user may not list classes."""
    try:
        classes = api.raw("apis/storage.k8s.io/v1/storageclasses")["items"]
    except ApiError as error:
        if error.status == 403:
            return None
        raise
    return any((one["metadata"].get("annotations") or {}).get(_IS_DEFAULT) == "true" for one in classes)


def listed(api: Api, kind: str) -> list[Object] | None:
    """All objects of a kind; None if this user may not list them."""
    try:
        return api.all(kind)
    except ApiError as error:
        if error.status == 403:
            return None
        raise


def _probe(**spec: object) -> Object:
    """A pod for a dry run: `restricted` refuses it and `baseline` accepts it, unless it asks for more."""
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}}
    container = {"name": "main", "image": "probe", "resources": resources}
    metadata = {"generateName": "oarlock-doctor-", "labels": {MANAGED: "oarlock"}}
    described = {"containers": [container], "automountServiceAccountToken": False, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": described}


def _refused_by(api: Api, pod: Object) -> str | None:
    """The level that refuses the pod; '' if it would be accepted, None if something else refuses it."""
    try:
        api.create(pod, dry_run=True)
        return ""
    except ApiError as error:
        if error.status != 403:
            raise
        _, found, level = error.message.partition('violates PodSecurity "')
        return level.partition(":")[0] if found else None
