"""The machines of a job in groups of equal ones; each group is an Indexed Job. Pure.

The leader is a group of its own, because it alone mounts the claim; the others of its role follow it.
However many workers there are, the number of groups is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from oarlock.agent.protocol.pod_paths import STORE
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
    by_ingest: tuple[str, ...] = ()  # `cpu` or `memory`, if the ingest needs as much of it or more


def of(job: Job) -> tuple[Group, ...]:
    """The groups of a job, the leader first."""
    found: list[Group] = []
    for role in cluster.ROLES:
        if role in job.gang:
            found += _of_role(role, job.gang[role], leads=not found)
    return tuple(_with_ingest(group, job) for group in found)


def ingests_once(job: Job) -> bool:
    """Whether all pods see the data that one of them prepares; else they need copies of it."""
    asked = job.storage.data or "data"
    claim = job.kubernetes.claim
    is_on_claim = not asked.startswith("/") or asked.startswith(f"{STORE}/")
    volumes = [
        volume.path.rstrip("/")
        for volume in job.kubernetes.volumes.values()
        if not volume.empty and not volume.read_only and not volume.roles
    ]
    return (
        (is_on_claim and claim is not None and claim.shared)
        or any(f"{asked}/".startswith(f"{path}/") for path in volumes)
        or sum(role.replicas.max for name, role in job.gang.items() if name != "ps") == 1
    )


def _with_ingest(group: Group, job: Job) -> Group:
    """The ingest runs in the pods of the gang, before their tasks: they need the larger of both."""
    ingest = job.ingest
    if ingest is None or group.role == "ps" or not (group.leads or not ingests_once(job)):
        return group
    own, needs = group.part, ingest
    part = msgspec.structs.replace(
        own,
        cpu=max(own.cpu, needs.cpu),
        memory=max(own.memory, needs.memory, key=lambda size: size.bytes),
    )
    is_as_large = {"cpu": needs.cpu >= own.cpu, "memory": needs.memory.bytes >= own.memory.bytes}
    return replace(group, part=part, by_ingest=tuple(name for name, held in is_as_large.items() if held))


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
