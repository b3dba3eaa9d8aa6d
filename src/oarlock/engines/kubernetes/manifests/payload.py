"""Everything of a run that is sent, before it becomes objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oarlock.engines.kubernetes.api.names import JOB, Identity
from oarlock.engines.kubernetes.manifests.groups import Group
from oarlock.job.model import Job

PART = 1024 * 1024  # bytes in a ConfigMap, by the API server's rule


@dataclass(frozen=True)
class Parcel:
    """A run, packed: what its objects are made of."""

    run: str
    job: Job
    groups: tuple[Group, ...]  # the leader first
    images: Mapping[str, str]  # by group
    spec: str  # as JSON
    written: str  # the job, as YAML: for other clients
    agent: bytes
    program: bytes
    token: str
    framework: str = "none"
    files: int = 0  # of the program, and their bytes
    size: int = 0
    withheld: tuple[str, ...] = ()  # files that stay behind because they may hold credentials
    part: int = PART
    id: str = ""  # the spec's
    warnings: tuple[str, ...] = ()  # what will go wrong in the pods, as far as the program shows it
    owner: str = ""  # the user by the cluster's name; `render` does not know it

    @property
    def leader(self) -> Group:
        """The group whose only pod leads the run."""
        return self.groups[0]

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every object: the user's, which cannot replace those that identify the run."""
        return {**self.job.kubernetes.labels, **self.identity.labels, JOB: self.job.name}

    @property
    def identity(self) -> Identity:
        """The name and id by which the cluster finds the run's objects."""
        return Identity(self.run, self.id)

    @property
    def code(self) -> dict[str, bytes]:
        """The parts of the program's archive, by ConfigMap; the first also has the agent and the spec."""
        room = self.part - len(self.agent) - len(self.spec.encode()) - len(self.written.encode())
        cuts = [0, *range(room, len(self.program), self.part)]
        ends = [*cuts[1:], len(self.program)]
        return {
            f"{self.run}-code-{number}": self.program[start:end]
            for number, (start, end) in enumerate(zip(cuts, ends, strict=True))
        }

    def name_of(self, group: Group) -> str:
        """The name of a group's Job."""
        return f"{self.run}-{group.name}"
