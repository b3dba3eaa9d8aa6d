"""Tolerations as Kubernetes writes them, for all pods or those of one role. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from oarlock.job.cluster_names import LABEL_NAME, LABEL_VALUE
from oarlock.job.parsing import kinds
from oarlock.job.parsing.fields import FieldError, Section, Sections, fields_of


class Toleration(Section, frozen=True, kw_only=True):
    """A taint that a pod tolerates, written as Kubernetes writes it."""

    key: Annotated[str | None, LABEL_NAME, "The taint's key. Default: any."] = None
    operator: Annotated[str | None, kinds.choice("Equal", "Exists"), "How key and value are compared."] = None
    value: Annotated[str | None, LABEL_VALUE, "The taint's value, with Equal."] = None
    effect: Annotated[
        str | None,
        kinds.choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
        "The taint's effect. Default: any.",
    ] = None
    tolerationSeconds: Annotated[  # noqa: N815 - Kubernetes' own name
        int | None, kinds.whole(0), "How long a NoExecute taint is tolerated."
    ] = None

    def check(self) -> None:
        """Refuse what Kubernetes would refuse only when it creates the pods."""
        if self.operator == "Exists" and self.value:
            raise FieldError(("value",), "Exists has no value; leave one of them out")
        if self.key is None and self.operator != "Exists":
            raise FieldError((), "without a key the operator must be Exists; give one of them")
        if self.tolerationSeconds is not None and self.effect != "NoExecute":
            raise FieldError(("tolerationSeconds",), "only with effect: NoExecute")


def _as_mapping(toleration: Toleration) -> dict[str, Any]:
    given = {name: getattr(toleration, name) for name in fields_of(Toleration)}
    return {name: value for name, value in given.items() if value is not None}


TOLERATIONS = Sections("a list of tolerations", Toleration, then=_as_mapping)
