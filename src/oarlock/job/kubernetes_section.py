"""What only Kubernetes needs to know of a job: where its pods come from, what they mount, how they are named.

The fields and their checks; no word here about how pods are made of them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from oarlock.job.parsing import kinds
from oarlock.job.parsing.fields import FieldError, Section, Sections, fields_of
from oarlock.quantities import Duration, Size
from oarlock.wording import listed

ROLES = ("chief", "worker", "ps", "evaluator")

_DNS = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def _name(what: str, most: int = 253) -> kinds.Kind:
    """The name of something in a cluster."""
    longest = f"(?!.{{{most + 1}}})"
    return kinds.text(
        f"{what}: lower-case letters, digits, '-' and '.', at most {most} characters",
        rf"{longest}{_DNS}(?:\.{_DNS})*",
        hint=_nearest_name,
    )


def _label(what: str) -> kinds.Kind:
    """A name that is part of another one, or of an address."""
    return kinds.text(
        f"{what}: lower-case letters, digits and '-', at most 63 characters",
        f"(?!.{{64}}){_DNS}",
        hint=_nearest_name,
    )


def _nearest_name(written: str) -> str:
    name = re.sub("[^a-z0-9]+", "-", written.lower())[:63].strip("-")
    return f"try {name}" if name else ""


def _not_ours(name: str) -> str | None:
    if name.startswith(("oarlock.dev/", "batch.kubernetes.io/")) or name == "app.kubernetes.io/managed-by":
        return "Oarlock or Kubernetes sets it; leave it out"
    return None


def _user(written: Any) -> int:
    if written == 0 and not isinstance(written, bool):
        raise ValueError("expected 1 or more, found 0; clusters with Pod Security's restricted refuse root")
    user: int = _USER.read(written)
    return user


def _volume_name(written: Any) -> str:
    name: str = _label("the name of a volume").read(written)
    if name.startswith("oarlock"):
        raise ValueError("names that start with oarlock are Oarlock's own; call it otherwise")
    return name


_USER = kinds.whole(1, 2**31 - 1)
IMAGE = kinds.text("an image such as python:3.11-slim", r"\S+")
_ACCESS = kinds.choice("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
_CLASS = _name("the name of a storage class")
_CLAIM = _name("the name of a claim")
_PATH = kinds.text(
    "an absolute path such as /data",
    r"(?:/(?!\.\.?(?:/|$))[^/:\x00-\x1f]+)+/?",
    hint=lambda written: f"did you mean /{written}?" if re.fullmatch(r"[\w-][\w./-]{0,40}", written) else "",
)
_SOME_ROLES = kinds.several(f"a list of {listed(ROLES)}", kinds.choice(*ROLES))
_LABEL_NAME = kinds.text(
    "a name such as team or example.com/team", rf"(?:(?![^/]{{254}}){_DNS}(?:\.{_DNS})*/)?{_WORD}"
)
_LABEL_VALUE = kinds.text(
    "at most 63 letters, digits, '-', '_' and '.', a letter or a digit first and last",
    f"(?:{_WORD})?",
    least=0,
)
_LABELS = kinds.pairs(_LABEL_NAME, _LABEL_VALUE, _not_ours)
_ANNOTATIONS = kinds.pairs(_LABEL_NAME, kinds.text("text", least=0), _not_ours)
_VARIABLES = kinds.pairs(
    kinds.text("a name for an environment variable", "[A-Za-z_][A-Za-z0-9_]*"),
    kinds.text("a key of the secret", "[A-Za-z0-9._-]+"),
)

NODE_SELECTOR = kinds.pairs(_LABEL_NAME, _LABEL_VALUE)


class Toleration(Section, frozen=True, kw_only=True):
    """A taint that a pod may be put on a node in spite of, written as Kubernetes writes it."""

    key: Annotated[str | None, _LABEL_NAME, "The taint's key; without it, any."] = None
    operator: Annotated[str | None, kinds.choice("Equal", "Exists"), "How value is meant."] = None
    value: Annotated[str | None, _LABEL_VALUE, "The taint's value, with Equal."] = None
    effect: Annotated[
        str | None,
        kinds.choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
        "The taint's effect; without it, any.",
    ] = None
    tolerationSeconds: Annotated[  # noqa: N815 - Kubernetes' own name
        int | None, kinds.whole(0), "How long a NoExecute taint is borne."
    ] = None

    def check(self) -> None:
        if self.operator == "Exists" and self.value:
            raise FieldError(("value",), "Exists has no value; leave one of them out")
        if self.key is None and self.operator != "Exists":
            raise FieldError((), "without a key the operator is Exists; give one of them")
        if self.tolerationSeconds is not None and self.effect != "NoExecute":
            raise FieldError(("tolerationSeconds",), "only with effect: NoExecute")


def _as_mapping(toleration: Toleration) -> dict[str, Any]:
    given = {name: getattr(toleration, name) for name in fields_of(Toleration)}
    return {name: value for name, value in given.items() if value is not None}


TOLERATIONS = Sections("a list of tolerations", Toleration, then=_as_mapping)


class Claim(Section, frozen=True, kw_only=True):
    """The volume of the leader. A bare name is short for that claim, which exists; none for no claim."""

    shorthand: ClassVar[str | None] = "name"

    name: Annotated[str | None, _CLAIM, "The claim's name. Default: the job's."] = None
    existing: Annotated[bool, kinds.flag(), "It is there already; Oarlock does not create it."] = False
    size: Annotated[Size, kinds.size(), "How large it is made, such as 10Gi."] = Size(10 * 1024**3)
    storage_class: Annotated[str | None, _CLASS, "Its storage class. Default: the cluster's."] = None
    access: Annotated[str, _ACCESS, "Who may mount it at the same time."] = "ReadWriteOnce"
    shared: Annotated[bool, kinds.flag(), "All tasks mount it; needs ReadWriteMany."] = False

    @classmethod
    def spelled_out(cls, written: Any) -> Mapping[str, Any] | None:
        return None if isinstance(written, (list, tuple)) else {"name": written, "existing": True}

    def check(self) -> None:
        if self.existing and self.name is None:
            raise FieldError(("existing",), "which one? Give its name")
        if self.existing and self.size != fields_of(Claim)["size"].default:
            raise FieldError(("size",), f"{self.name} exists and has its size; leave one of them out")
        if self.existing and self.storage_class:
            raise FieldError(
                ("storage_class",), f"{self.name} exists and has its class; leave one of them out"
            )
        if self.shared and not self.existing and self.access != "ReadWriteMany":
            raise FieldError(("shared",), f"needs access: ReadWriteMany, found {self.access}")


class Volume(Section, frozen=True, kw_only=True):
    """A volume of the user's: an existing claim, one that is created with a size, or an empty folder."""

    path: Annotated[str, _PATH, "Where tasks find it, such as /data."]
    claim: Annotated[str | None, _CLAIM, "An existing claim."] = None
    size: Annotated[Size | None, kinds.size(), "How large the claim is made, or how full empty may get."] = (
        None
    )
    storage_class: Annotated[str | None, _CLASS, "The class of a claim that is created."] = None
    access: Annotated[str, _ACCESS, "Who may mount it at the same time."] = "ReadWriteOnce"
    empty: Annotated[bool, kinds.flag(), "A folder of the pod's own that is gone with it."] = False
    read_only: Annotated[bool, kinds.flag(), "Tasks cannot write to it."] = False
    roles: Annotated[tuple[str, ...], _SOME_ROLES, "Which roles mount it. Default: all."] = ()

    def check(self) -> None:
        if self.claim is None and self.size is None and not self.empty:
            raise FieldError((), "nothing to mount; give one of claim, size and empty")
        if self.claim is not None and (self.empty or self.size is not None):
            other = "empty" if self.empty else "size"
            raise FieldError((other,), "claim is given too; give one of claim, size and empty")
        if self.storage_class and (self.empty or self.claim is not None):
            raise FieldError(("storage_class",), "only for a claim that is created, with size")
        if self.empty and self.access != fields_of(Volume)["access"].default:
            raise FieldError(("access",), "only for a claim; an empty folder is one pod's own")
        if self.empty and self.read_only:
            raise FieldError(("read_only",), "an empty folder that is never written to stays empty")


class SecretUse(Section, frozen=True, kw_only=True):
    """What tasks see of a secret of the cluster's. A bare path is short for `path`."""

    shorthand: ClassVar[str | None] = "path"

    path: Annotated[str | None, _PATH, "Its keys become files in this folder."] = None
    variables: Annotated[bool, kinds.flag(), "Its keys become variables of the same names."] = False
    env: Annotated[dict[str, str], _VARIABLES, "Variables, and the key that each is taken from."] = (
        msgspec.field(default_factory=dict)
    )
    roles: Annotated[tuple[str, ...], _SOME_ROLES, "Which roles see it. Default: all."] = ()

    def check(self) -> None:
        if self.path is None and not self.variables and not self.env:
            raise FieldError((), "used for nothing; give at least one of path, variables and env")


_VOLUMES = Sections(
    "names of volumes and their fields",
    Volume,
    kinds.Kind(_volume_name, {"type": "string", "pattern": f"^(?!oarlock)(?!.{{64}}){_DNS}$"}),
)
_SECRETS = Sections("names of secrets and their fields", SecretUse, _name("the name of a secret"))


class Kubernetes(Section, frozen=True, kw_only=True):
    """Settings that only Kubernetes has."""

    context: Annotated[
        str | None, kinds.text("the name of a context"), "The kubeconfig's context. Default: the current one."
    ] = None
    namespace: Annotated[
        str | None, _label("a namespace"), "Where the run lives. Default: the context's."
    ] = None
    image: Annotated[str | None, IMAGE, "The image of every pod. Default: by framework."] = None
    pull_policy: Annotated[
        str | None, kinds.choice("Always", "IfNotPresent", "Never"), "When nodes pull the image."
    ] = None
    pull_secrets: Annotated[
        tuple[str, ...],
        kinds.several("a list of secrets' names", _name("the name of a secret")),
        "Secrets to pull images with.",
    ] = ()
    user: Annotated[
        int | str,
        kinds.either("image", kinds.Kind(_user, _USER.schema), "a whole number, or image"),
        "The user that tasks run as; image leaves it to the image.",
    ] = 1000
    service_account: Annotated[
        str | None, _name("the name of a service account"), "The pods' service account."
    ] = None
    node_selector: Annotated[dict[str, str], NODE_SELECTOR, "Labels that a node must have."] = msgspec.field(
        default_factory=dict
    )
    tolerations: Annotated[tuple[dict[str, Any], ...], TOLERATIONS, "Taints that pods may be put on."] = ()
    priority_class: Annotated[
        str | None, _name("the name of a priority class"), "The pods' priority class."
    ] = None
    scheduler: Annotated[str | None, _name("the name of a scheduler"), "Who places the pods."] = None
    queue: Annotated[str | None, _name("the name of a queue", 63), "Kueue's local queue to wait in."] = None
    labels: Annotated[dict[str, str], _LABELS, "Labels for all that is created."] = msgspec.field(
        default_factory=dict
    )
    annotations: Annotated[dict[str, str], _ANNOTATIONS, "Annotations for all that is created."] = (
        msgspec.field(default_factory=dict)
    )
    claim: Annotated[
        Claim | None, "The leader's volume, for checkpoints, model, logs and the run's record; or none."
    ] = Claim()
    volumes: Annotated[dict[str, Volume], _VOLUMES, "Other volumes, by name."] = msgspec.field(
        default_factory=dict
    )
    secrets: Annotated[dict[str, SecretUse], _SECRETS, "Secrets that tasks see, by name."] = msgspec.field(
        default_factory=dict
    )
    shm: Annotated[Size | None, kinds.size(), "How large /dev/shm may get, such as 1Gi."] = None
    ttl: Annotated[Duration, kinds.duration(), "How long a run that has ended is kept."] = Duration(86400)
    pod: Annotated[dict[str, Any], kinds.anything(), "Merged last into every pod's spec."] = msgspec.field(
        default_factory=dict
    )

    def check(self) -> None:
        if self.queue and self.labels.get(_QUEUE_LABEL, self.queue) != self.queue:
            raise FieldError(("labels", _QUEUE_LABEL), f"queue says {self.queue}; leave one of them out")
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
        """Raise FieldError for what does not go together with the rest of the job."""
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
    """Whether a role sees both; none named is all of them."""
    return not roles or not others or bool(set(roles) & set(others))
