"""What pods mount: the leader's claim, other volumes, and secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from oarlock.job.cluster_names import DNS, dns_label, object_name
from oarlock.job.parsing import compound_kinds, kinds
from oarlock.job.parsing.fields import FieldError, Section, Sections, fields_of
from oarlock.quantities import Size
from oarlock.run.cluster import ROLES
from oarlock.wording import listed

_ACCESS = kinds.choice("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
_CLASS = object_name("the name of a storage class")
_CLAIM = object_name("the name of a claim")
_PATH = kinds.text(
    "an absolute path such as /data",
    r"(?:/(?!\.\.?(?:/|$))[^/:\x00-\x1f]+)+/?",
    hint=lambda written: f"did you mean /{written}?" if re.fullmatch(r"[\w-][\w./-]{0,40}", written) else "",
)
_SOME_ROLES = compound_kinds.several(f"a list of {listed(ROLES)}", kinds.choice(*ROLES))
_VARIABLES = compound_kinds.pairs(
    kinds.text("a name for an environment variable", "[A-Za-z_][A-Za-z0-9_]*"),
    kinds.text("a key of the secret", "[A-Za-z0-9._-]+"),
)


class Claim(Section, frozen=True, kw_only=True):
    """The leader's volume. A bare name stands for an existing claim of that name; none for no claim."""

    shorthand: ClassVar[str | None] = "name"

    name: Annotated[str | None, _CLAIM, "The claim's name. Default: the job's."] = None
    existing: Annotated[bool, kinds.flag(), "The claim exists; Oarlock does not create it."] = False
    size: Annotated[Size, kinds.size(), "The size of a new claim, such as 10Gi."] = Size(10 * 1024**3)
    storage_class: Annotated[str | None, _CLASS, "Its storage class. Default: the cluster's."] = None
    access: Annotated[str, _ACCESS, "How many nodes or pods may mount it."] = "ReadWriteOnce"
    shared: Annotated[bool, kinds.flag(), "All tasks mount it; needs ReadWriteMany."] = False

    @classmethod
    def spelled_out(cls, written: Any) -> Mapping[str, Any] | None:
        """A bare name is an existing claim."""
        return None if isinstance(written, (list, tuple)) else {"name": written, "existing": True}

    def check(self) -> None:
        """Refuse settings that an existing claim has already, or that its access does not allow."""
        if self.existing and self.name is None:
            raise FieldError(("existing",), "which one? give its name")
        if self.existing and self.size != fields_of(Claim)["size"].default:
            raise FieldError(("size",), f"{self.name} exists and has its size; leave one of them out")
        if self.existing and self.storage_class:
            raise FieldError(
                ("storage_class",), f"{self.name} exists and has its class; leave one of them out"
            )
        if self.shared and not self.existing and self.access != "ReadWriteMany":
            raise FieldError(("shared",), f"needs access: ReadWriteMany, found {self.access}")


class Volume(Section, frozen=True, kw_only=True):
    """A volume for tasks: an existing claim, a new claim with a size, or an empty folder."""

    path: Annotated[str, _PATH, "Where tasks find it, such as /data."]
    claim: Annotated[str | None, _CLAIM, "An existing claim."] = None
    size: Annotated[
        Size | None, kinds.size(), "The size of a new claim, or the limit of an empty folder."
    ] = None
    storage_class: Annotated[str | None, _CLASS, "The storage class of a new claim."] = None
    access: Annotated[str, _ACCESS, "How many nodes or pods may mount it."] = "ReadWriteOnce"
    empty: Annotated[bool, kinds.flag(), "A folder of the pod that is deleted with it."] = False
    read_only: Annotated[bool, kinds.flag(), "Tasks cannot write to it."] = False
    roles: Annotated[tuple[str, ...], _SOME_ROLES, "Which roles mount it. Default: all."] = ()

    def check(self) -> None:
        """Refuse a volume without exactly one source."""
        if self.claim is None and self.size is None and not self.empty:
            raise FieldError((), "nothing to mount; give one of claim, size and empty")
        if self.claim is not None and (self.empty or self.size is not None):
            other = "empty" if self.empty else "size"
            raise FieldError((other,), "claim is given too; give one of claim, size and empty")
        if self.storage_class and (self.empty or self.claim is not None):
            raise FieldError(("storage_class",), "only for a new claim, with size")
        if self.empty and self.access != fields_of(Volume)["access"].default:
            raise FieldError(("access",), "only for a claim; an empty folder belongs to one pod")
        if self.empty and self.read_only:
            raise FieldError(("read_only",), "nothing can ever be in an empty folder that is read-only")


class SecretUse(Section, frozen=True, kw_only=True):
    """How tasks use a secret of the cluster. A bare path is short for `path`."""

    shorthand: ClassVar[str | None] = "path"

    path: Annotated[str | None, _PATH, "The folder in which its keys are files."] = None
    variables: Annotated[bool, kinds.flag(), "Set a variable of the same name for each key."] = False
    env: Annotated[dict[str, str], _VARIABLES, "Variables, each with the key of its value."] = msgspec.field(
        default_factory=dict
    )
    roles: Annotated[tuple[str, ...], _SOME_ROLES, "Which roles see it. Default: all."] = ()

    def check(self) -> None:
        """Refuse a Secret that no task would see."""
        if self.path is None and not self.variables and not self.env:
            raise FieldError((), "not used; give at least one of path, variables and env")


def _volume_name(written: Any) -> str:
    name: str = dns_label("the name of a volume").read(written)
    if name.startswith("oarlock"):
        raise ValueError("names that start with oarlock are reserved; choose another")
    return name


VOLUMES = Sections(
    "names of volumes and their fields",
    Volume,
    kinds.Kind(_volume_name, {"type": "string", "pattern": f"^(?!oarlock)(?!.{{64}}){DNS}$"}),
)
SECRETS = Sections("names of secrets and their fields", SecretUse, object_name("the name of a secret"))
