"""The machines of a job in groups of equal ones; each group is an Indexed Job. Pure.

The leader is a group of its own, because it alone mounts the claim; the others of its role follow it.
However many workers there are, the number of groups is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from oarlock.job.model import Job, Role
from oarlock.run import cluster


@dataclass(frozen=True)
class Group:
    """Machines that differ only in their index: the pods of one Job."""

    name: str  # lead, worker, worker-2, ps, ...
    role: str
    offset: int  # the index of its first member
    count: int
    part: Role  # what each of its machines needs
    leads: bool = False


def of(job: Job) -> tuple[Group, ...]:
    """The groups of a job, the leader first."""
    found: list[Group] = []
    for role in cluster.ROLES:
        described: Role | None = getattr(job.roles, role)
        if described is not None:
            found += _of_role(role, described, leads=not found)
    return tuple(found)


def _of_role(role: str, described: Role, leads: bool) -> list[Group]:
    found: list[Group] = []
    offset = 0
    for number, part in enumerate(described.parts, 1):
        count = part.replicas.max
        if leads:
            found.append(Group("lead", role, 0, 1, part, leads=True))
            offset, count, leads = 1, count - 1, False
        if count:
            found.append(Group(role if number == 1 else f"{role}-{number}", role, offset, count, part))
        offset += count
    return found
