"""The objects of a run that a diagnosis reads, and the tasks that they belong to. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from oarlock.agent.protocol.pod_paths import SEAT_OFFSET
from oarlock.engines.kubernetes.api.names import INDEX, ROLE, RUN, SERVER, SHM_VOLUME, Object
from oarlock.quantities import Size

JOB_OF = "batch.kubernetes.io/job-name"
_OLDEST = "0001-01-01T00:00:00Z"


@dataclass(frozen=True)
class Evidence:
    """The objects of one run at one time."""

    jobs: Sequence[Object]
    pods: Sequence[Object]
    happenings: Sequence[Object]
    claims: Sequence[Object]
    now: float | None = None  # None: the newest timestamp in the objects

    def about(self, item: Object, *reasons: str) -> list[str]:
        """The messages of events about an object, the newest first."""
        metadata = item["metadata"]
        found = [
            event
            for event in self.happenings
            if event["involvedObject"].get("name") == metadata["name"]
            and event["involvedObject"].get("uid", metadata.get("uid")) == metadata.get("uid")
            and (not reasons or event.get("reason") in reasons)
        ]
        return [str(event.get("message", "")) for event in sorted(found, key=_moment, reverse=True)]

    def age(self, stamp: str | None) -> float:
        """Seconds since a timestamp; 0 without one."""
        return max(0.0, self._time - _seconds(stamp)) if stamp else 0.0

    def claims_of(self, pod: Object) -> list[Object]:
        """The claims that a pod mounts."""
        names = claim_names(pod)
        return [claim for claim in self.claims if claim["metadata"]["name"] in names]

    def pods_of(self, job: Object) -> list[Object]:
        """The pods of a Job."""
        return self._by_job.get(job["metadata"]["name"], [])

    def setting(self, role: str, field: str, value: str = "...") -> str:
        """How the user changes a field of a role. A role that is a list of groups has several values."""
        if not role:
            return f"{field} of its role"
        if role == SERVER:
            return f"--set serve.{field}={value}"
        if role in self._grouped:
            return f"{field} of its group under roles.{role}"
        return f"--set roles.{role}.{field}={value}"

    @cached_property
    def _by_job(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for pod in self.pods:
            found.setdefault(job_name(pod), []).append(pod)
        return found

    @cached_property
    def _grouped(self) -> frozenset[str]:
        names = [(labels_of(job).get(RUN, ""), job["metadata"]["name"]) for job in self.jobs]
        found = [re.fullmatch(rf"{re.escape(run)}-(\w+)-\d+", name) for run, name in names]
        return frozenset(match[1] for match in found if match)

    @cached_property
    def _time(self) -> float:
        if self.now is not None:
            return self.now
        stamps = [item["metadata"].get("creationTimestamp") for item in (*self.jobs, *self.pods)]
        seen = [_moment(event) for event in self.happenings]
        return max((_seconds(stamp) for stamp in (*stamps, *seen) if stamp), default=0.0)


def labels_of(item: Object) -> dict[str, str]:
    """The labels: an object without labels has no such field, or null."""
    return item["metadata"].get("labels") or {}


def annotations_of(item: Object) -> dict[str, str]:
    """The annotations: an object without annotations has no such field, or null."""
    return item["metadata"].get("annotations") or {}


def task_of(pod: Object) -> str:
    """The task of a pod, such as `worker-1`; for a pod without a task, the pod's own name."""
    labels = labels_of(pod)
    if ROLE not in labels or INDEX not in labels:
        return str(pod["metadata"]["name"])
    return f"{labels[ROLE]}-{_offset(pod['spec']) + int(labels[INDEX])}"


def tasks_of(job: Object) -> list[str]:
    """The tasks of a Job by index."""
    template = job["spec"]["template"]
    role = labels_of({"metadata": template.get("metadata") or {}}).get(ROLE) or job["metadata"]["name"]
    offset = _offset(template["spec"])
    return [f"{role}-{offset + index}" for index in range(job["spec"].get("completions") or 1)]


def role_of(pod: Object) -> str:
    """The role of a pod's tasks; empty for a pod without a task."""
    return labels_of(pod).get(ROLE, "")


def job_name(pod: Object) -> str:
    """The Job that made a pod; empty if none did."""
    return labels_of(pod).get(JOB_OF, "")


def condition(item: Object, kind: str) -> Object:
    """The condition of a kind; empty if it is not set."""
    for found in item.get("status", {}).get("conditions") or []:
        if found["type"] == kind:
            return dict(found)
    return {}


def statuses(pod: Object) -> Iterator[Object]:
    """Container statuses in start order."""
    yield from pod["status"].get("initContainerStatuses") or []
    yield from pod["status"].get("containerStatuses") or []


def claim_names(pod: Object) -> list[str]:
    """The claims that a pod mounts, by name, whether they exist or not."""
    volumes = pod["spec"].get("volumes") or []
    return [one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one]


def requested(pod: Object, resource: str) -> str:
    """The amount that a pod requests; memory as in the job file, without /dev/shm."""
    resources = pod["spec"]["containers"][0].get("resources") or {}
    either = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    amount = str(either.get(resource, ""))
    if resource == "memory" and amount:
        return without_shm(pod["spec"], amount)
    if resource == "cpu" and amount.endswith("m"):
        return f"{int(amount[:-1]) / 1000:g}"
    return amount


def without_shm(spec: Object, amount: str) -> str:
    """The part of a pod's memory that the job file asks for: the manifest adds /dev/shm to it."""
    shared = [one for one in spec.get("volumes") or [] if one["name"] == SHM_VOLUME]
    limit = (shared[0].get("emptyDir") or {}).get("sizeLimit") if shared else None
    try:
        return str(Size(Size.parse(amount).bytes - (Size.parse(limit).bytes if limit else 0)))
    except ValueError:
        return amount


def _offset(spec: Object) -> int:
    for variable in spec["containers"][0].get("env") or []:
        if variable["name"] == SEAT_OFFSET:
            return int(variable.get("value") or 0)
    return 0


def _moment(event: Object) -> str:
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or _OLDEST
    )


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
