"""The section `serve` of a job: how its model is served, and which score it needs for that. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

from oarlock.job.cluster_names import DNS, IMAGE, object_name
from oarlock.job.parsing import kinds
from oarlock.job.parsing.fields import FieldError, Section
from oarlock.job.roles import Role
from oarlock.job.stages import PIP, PROGRAM, VARIABLES
from oarlock.quantities import Duration, Replicas, Size
from oarlock.run.typed import is_number

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
_CONDITION = rf"([A-Za-z_][A-Za-z0-9_./-]*) *(>=|<=|>|<) *({_NUMBER})"
_WHEN = kinds.text("a score and a bound such as accuracy >= 0.95", _CONDITION)
_GATEWAY = kinds.text("the name of a Gateway, or NAMESPACE/NAME", rf"(?:{DNS}/)?{DNS}(?:\.{DNS})*")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class Batching(Section, frozen=True, kw_only=True):
    """How requests that wait are run together."""

    max_rows: Annotated[int, kinds.whole(1, 65536), "The most rows of one batch."] = 64
    queue: Annotated[
        Duration, kinds.duration("0.01s"), "How much work may wait; more is refused with 429."
    ] = Duration(1)


class Serve(Section, frozen=True, kw_only=True):
    """How `oarlock serve`, and `oarlock run --serve`, serve the model of a run."""

    shorthand: ClassVar[str | None] = "replicas"

    replicas: Annotated[Replicas, kinds.replicas(), "Processes here, pods on a cluster; min..max there."] = (
        Replicas(1)
    )
    cpu: Annotated[float, kinds.cores(), "CPU cores for each pod."] = 1.0
    memory: Annotated[Size, kinds.size(), "Memory for each pod."] = Size(2 * 1024**3)
    gpu: Annotated[int | None, kinds.whole(0), "GPUs for each pod. Default: none."] = None
    image: Annotated[str | None, IMAGE, "Its own image, on Kubernetes."] = None
    pip: Annotated[tuple[str, ...], PIP, "Packages that its pods install, besides the job's."] = ()
    env: Annotated[dict[str, str], VARIABLES, "Variables for it, besides the job's."] = msgspec.field(
        default_factory=dict
    )
    port: Annotated[int | None, kinds.whole(1, 65535), "The port here. Default: 8000, or a free one."] = None
    version: Annotated[
        str, kinds.choice("newest", "best"), "Which version is served, and what a newer one has to be."
    ] = "newest"
    batching: Annotated[Batching, "How requests that wait are run together."] = Batching()
    deadline: Annotated[Duration, kinds.duration("0.01s"), "How long a request may take."] = Duration(30)
    body_limit: Annotated[Size, kinds.size(), "The largest request."] = Size(32 << 20)
    access_log: Annotated[bool, kinds.flag(), "Write a line of JSON for every request."] = False
    predict: Annotated[
        str | None, PROGRAM, "A Python file whose functions prepare inputs and outputs (before, after)."
    ] = None
    ingress: Annotated[
        str | None, object_name("a host name"), "The name by which others reach it from outside of a cluster."
    ] = None
    gateway: Annotated[
        str | None, _GATEWAY, "The Gateway that leads there, as NAME or NAMESPACE/NAME. Default: an Ingress."
    ] = None
    when: Annotated[
        str | None, _WHEN, "With `oarlock run --serve`: serve only if the score is good enough."
    ] = None

    @property
    def role(self) -> Role:
        """What its machines need."""
        return Role(replicas=self.replicas, cpu=self.cpu, memory=self.memory, gpu=self.gpu, image=self.image)

    @property
    def condition(self) -> Condition | None:
        """The score that the model must reach before it is served."""
        return None if self.when is None else Condition.of(self.when)


class Condition(NamedTuple):
    """A bound for a score."""

    metric: str
    sign: str
    bound: float

    @classmethod
    def of(cls, written: str) -> Condition:
        """Read a checked condition."""
        found = re.fullmatch(_CONDITION, written)
        if found is None:
            raise FieldError(("when",), f"{written!r} is not a score and a bound")
        return cls(found[1], found[2], float(found[3]))

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}"

    def refusal(self, scores: Mapping[str, Any]) -> str | None:
        """Why a model with these scores is not served; None if it is."""
        value = scores.get(self.metric)
        if value is None or not is_number(value):
            known = ", ".join(name for name, one in scores.items() if is_number(one)) or "none"
            return f"there is no score {self.metric}; there is {known}"
        if _COMPARE[self.sign](value, self.bound):
            return None
        return f"{self.metric} is {value:g}, not {self.sign} {self.bound:g}"
