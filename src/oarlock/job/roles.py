"""The roles of a job: how many members each has, and what their machines need. Pure."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from oarlock.job.cluster_names import IMAGE, NODE_SELECTOR
from oarlock.job.parsing import kinds
from oarlock.job.parsing.fields import FieldError, Section, Sections, fields_of
from oarlock.job.tolerations import TOLERATIONS
from oarlock.quantities import Replicas, Size


class Role(Section, frozen=True):
    """One role of the gang: the number of its members and what each of its machines needs.

    A list is short for `groups`: members on different machines, some with a GPU and some without.
    """

    shorthand: ClassVar[str | None] = "replicas"
    list_of: ClassVar[str | None] = "groups"

    replicas: Annotated[Replicas, kinds.replicas(), "How many: a number, or min..max."] = Replicas(1)
    processes: Annotated[int, kinds.whole(1), "Processes on each machine; one per GPU is usual."] = 1
    cpu: Annotated[float, kinds.cores(), "CPU cores for each machine, such as 2, 0.5 or 500m."] = 1.0
    memory: Annotated[Size, kinds.size(), "Memory for each machine, such as 4Gi."] = Size(2 * 1024**3)
    gpu: Annotated[
        int | None,
        kinds.whole(0),
        "GPUs for each machine, shared among its processes. Default: none; locally, trainers see all.",
    ] = None
    image: Annotated[str | None, IMAGE, "Its own image, on Kubernetes."] = None
    node_selector: Annotated[
        dict[str, str], NODE_SELECTOR, "Labels that its nodes must have, on Kubernetes."
    ] = msgspec.field(default_factory=dict)
    tolerations: Annotated[
        tuple[dict[str, Any], ...], TOLERATIONS, "Taints that its pods tolerate, on Kubernetes."
    ] = ()
    groups: Annotated[
        tuple[Role, ...],
        Sections("a list of one group or more", Role, least=1),
        "Members that need different machines; a list is short for it.",
    ] = ()

    @property
    def parts(self) -> tuple[Role, ...]:
        """The role's groups, or the role itself if it has none."""
        return self.groups or (self,)

    @property
    def is_equal(self) -> bool:
        """Whether all its machines have the same number of processes."""
        return len({part.processes for part in self.parts}) == 1

    @property
    def members(self) -> tuple[int, ...]:
        """The processes of each member, in order."""
        return tuple(part.processes for part in self.parts for _ in range(part.replicas.max))

    def tasks(self, least: bool = False) -> int:
        """Return the number of tasks of all members together; `least`: the smallest number."""
        return sum(
            (part.replicas.min if least else part.replicas.max) * part.processes for part in self.parts
        )

    @property
    def gpus_each(self) -> int | None:
        """GPUs of each process; None if the job does not say."""
        return None if self.gpu is None else self.gpu // self.processes

    def check(self) -> None:
        """Refuse GPUs that cannot be shared out, and groups that do not go together."""
        if self.gpu and self.gpu % self.processes:
            raise FieldError(
                ("gpu",), f"expected 0 or a multiple of processes ({self.processes}), found {self.gpu}"
            )
        if not self.groups:
            return
        for number, group in enumerate(self.groups):
            if group.groups:
                raise FieldError(("groups", str(number)), "a group has no groups of its own")
            if group.replicas.elastic and not self.is_equal:
                raise FieldError(
                    ("groups", str(number), "replicas"),
                    "groups with different numbers of processes have a fixed number of members, "
                    f"found {group.replicas}",
                )
        # The outer role has what the groups have in common, for code that does not care about machines.
        self._adopt("replicas", _total(self.groups))
        self._adopt("processes", self.groups[0].processes if self.is_equal else 1)
        for name, field in fields_of(Role).items():
            if name not in ("replicas", "processes", "groups"):
                self._adopt(name, field.default)

    def _adopt(self, name: str, value: Any) -> None:
        given = getattr(self, name)
        if given not in (value, fields_of(Role)[name].default):
            raise FieldError((name,), "the role is a list of groups; give it in each group")
        msgspec.structs.force_setattr(self, name, value)


def _total(groups: tuple[Role, ...]) -> Replicas:
    try:
        least, most = (sum(getattr(group.replicas, end) for group in groups) for end in ("min", "max"))
        return Replicas(least, most)
    except ValueError as problem:
        raise FieldError(("groups",), f"together: {problem}") from None


class Roles(Section, frozen=True, kw_only=True):
    """The roles of the gang. A bare number is short for `replicas`: `worker: 4`, `worker: 2..8`."""

    chief: Annotated[Role | None, "The task that leads and saves. Default: worker 0 does."] = None
    worker: Annotated[Role | None, "The tasks that train; min..max lets the gang shrink and grow."] = None
    ps: Annotated[Role | None, "Parameter servers (TensorFlow)."] = None
    evaluator: Annotated[Role | None, "The task that scores checkpoints during training."] = None

    def check(self) -> None:
        """Refuse roles that no gang can have."""
        for name, role in (("chief", self.chief), ("evaluator", self.evaluator)):
            if role and role.replicas.max > 1:
                raise FieldError((name, "replicas"), f"there can be only one {name}, found {role.replicas}")
        if self.ps and self.ps.replicas.elastic:
            raise FieldError(("ps", "replicas"), f"expected a fixed number, found {self.ps.replicas}")
        if self.ps and not self.worker:
            raise FieldError(("ps",), "parameter servers need at least one worker; add worker")
        if self.evaluator and not self.chief and not self.worker:  # `oarlock run --evaluator train.py`
            msgspec.structs.force_setattr(self, "worker", Role())
        if not self.chief and not self.worker:
            raise FieldError((), "there is neither a chief nor a worker; add worker")
