"""The `kubernetes` section of a job: where its pods come from, what they mount, how they are named.

It has the fields and their checks; other modules make pods of them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any

import msgspec

from oarlock.job.cluster_names import ANNOTATIONS, IMAGE, LABELS, NODE_SELECTOR, QUEUE, dns_label, object_name
from oarlock.job.parsing import compound_kinds, kinds
from oarlock.job.parsing.fields import FieldError, Section
from oarlock.job.tolerations import TOLERATIONS
from oarlock.job.volumes import SECRETS, VOLUMES, Claim, SecretUse, Volume
from oarlock.quantities import Duration, Size

_USER = kinds.whole(1, 2**31 - 1)


def _user(written: Any) -> int:
    if written == 0 and not isinstance(written, bool):
        raise ValueError("expected 1 or more, found 0; clusters with Pod Security's restricted refuse root")
    user: int = _USER.read(written)
    return user


class Kubernetes(Section, frozen=True, kw_only=True):
    """Settings for Kubernetes."""

    context: Annotated[
        str | None, kinds.text("the name of a context"), "The kubeconfig's context. Default: the current one."
    ] = None
    namespace: Annotated[
        str | None, dns_label("a namespace"), "The run's namespace. Default: the context's."
    ] = None
    image: Annotated[str | None, IMAGE, "The image of every pod. Default: by framework."] = None
    pull_policy: Annotated[
        str | None, kinds.choice("Always", "IfNotPresent", "Never"), "When nodes pull the image."
    ] = None
    pull_secrets: Annotated[
        tuple[str, ...],
        compound_kinds.several("a list of secrets' names", object_name("the name of a secret")),
        "Secrets for pulling images.",
    ] = ()
    user: Annotated[
        int | str,
        kinds.either("image", kinds.Kind(_user, _USER.schema), "a whole number, or image"),
        "The user id of the tasks; image for the image's own.",
    ] = 1000
    service_account: Annotated[
        str | None, object_name("the name of a service account"), "The pods' service account."
    ] = None
    node_selector: Annotated[dict[str, str], NODE_SELECTOR, "Labels that a node must have."] = msgspec.field(
        default_factory=dict
    )
    tolerations: Annotated[tuple[dict[str, Any], ...], TOLERATIONS, "Taints that the pods tolerate."] = ()
    priority_class: Annotated[
        str | None, object_name("the name of a priority class"), "The pods' priority class."
    ] = None
    scheduler: Annotated[
        str | None, object_name("the name of a scheduler"), "The scheduler that places the pods."
    ] = None
    queue: Annotated[str | None, object_name("the name of a queue", 63), "The local queue of Kueue."] = None
    labels: Annotated[dict[str, str], LABELS, "Labels for every object that Oarlock creates."] = (
        msgspec.field(default_factory=dict)
    )
    annotations: Annotated[
        dict[str, str], ANNOTATIONS, "Annotations for every object that Oarlock creates."
    ] = msgspec.field(default_factory=dict)
    claim: Annotated[
        Claim | None, "The leader's volume for checkpoints, model, logs and the run's record; or none."
    ] = Claim()
    volumes: Annotated[dict[str, Volume], VOLUMES, "Other volumes, by name."] = msgspec.field(
        default_factory=dict
    )
    secrets: Annotated[dict[str, SecretUse], SECRETS, "Secrets that tasks use, by name."] = msgspec.field(
        default_factory=dict
    )
    shm: Annotated[Size | None, kinds.size(), "The limit of /dev/shm, such as 1Gi."] = None
    ttl: Annotated[Duration, kinds.duration(), "How long the cluster keeps a run after its end."] = Duration(
        86400
    )
    pod: Annotated[dict[str, Any], compound_kinds.anything(), "Merged last into every pod's spec."] = (
        msgspec.field(default_factory=dict)
    )

    def check(self) -> None:
        """Refuse a queue that contradicts its label, mounts that collide and variables that are set twice."""
        if self.queue and self.labels.get(QUEUE, self.queue) != self.queue:
            raise FieldError(("labels", QUEUE), f"queue says {self.queue}; leave one of them out")
        self._check_mounts()
        self._check_variables()

    def _check_mounts(self) -> None:
        mounted: list[tuple[str, str, Collection[str]]] = []
        for group, name, path, roles in self._mounts():
            for other, there, theirs in mounted:
                if path.rstrip("/") == there.rstrip("/") and _meet(roles, theirs):
                    raise FieldError((group, name, "path"), f"{other} is mounted at {path} too")
            mounted.append((name, path, roles))

    def _mounts(self) -> Iterator[tuple[str, str, str, Collection[str]]]:
        for name, volume in self.volumes.items():
            yield "volumes", name, volume.path, volume.roles
        for name, secret in self.secrets.items():
            if secret.path is not None:
                yield "secrets", name, secret.path, secret.roles

    def _check_variables(self) -> None:
        taken: list[tuple[str, str, Collection[str]]] = []
        for name, secret in self.secrets.items():
            for variable in secret.env:
                for other, same, theirs in taken:
                    if variable == same and _meet(secret.roles, theirs):
                        raise FieldError(("secrets", name, "env", variable), f"{other} gives it too")
            taken += [(name, variable, secret.roles) for variable in secret.env]

    def check_in_job(
        self, roles: Collection[str], env: Collection[str], refused: Callable[[str], str | None]
    ) -> None:
        """Raise FieldError for settings that contradict the rest of the job."""
        for group, uses in (("volumes", self.volumes), ("secrets", self.secrets)):
            for name, use in uses.items():
                for role in use.roles:
                    if role not in roles:
                        raise FieldError((group, name, "roles"), f"the job has no {role}")
        for name, secret in self.secrets.items():
            for variable in secret.env:
                why = "the job's env gives it too" if variable in env else refused(variable)
                if why:
                    raise FieldError(("secrets", name, "env", variable), why)


def _meet(roles: Collection[str], others: Collection[str]) -> bool:
    """Whether a role has both; an empty list stands for all roles."""
    return not roles or not others or bool(set(roles) & set(others))
