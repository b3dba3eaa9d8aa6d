"""Ending a run on its cluster: stop it so that it can go on, or delete it and prove that it is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from oarlock.engines.kubernetes import submit
from oarlock.engines.kubernetes.api import Api, Object
from oarlock.engines.kubernetes.labels import JOB, LEAD, MANAGED, RUN, STOPPED, selecting
from oarlock.errors import OarlockError

# All that a run may have made, in the order in which it is deleted: first what makes other things.
KINDS = ("Job", "Pod", "Service", "ConfigMap", "Secret", "NetworkPolicy")
_POLL = 0.1


def stop(api: Api, run: str, *, now: bool = False) -> None:
    """Suspend its Jobs: the pods get SIGTERM and the grace, and `resume` brings them back."""
    jobs = sorted(submit.jobs_of(api, run), key=lambda job: LEAD not in job["metadata"]["labels"])
    for job in jobs:
        change: Object = {"spec": {"suspend": True}}
        if LEAD in job["metadata"]["labels"]:
            change["metadata"] = {"annotations": {STOPPED: "stopped by the user"}}
        api.patch("Job", job["metadata"]["name"], change)
    if now:
        for pod in api.all("Pod", selecting(run)):
            api.delete("Pod", pod["metadata"]["name"], grace=1)


def resume(api: Api, run: str) -> None:
    """Go on with a stopped run."""
    jobs = sorted(submit.jobs_of(api, run), key=lambda job: LEAD not in job["metadata"]["labels"])
    if not jobs:
        raise OarlockError(f"{run} is no longer on the cluster; `oarlock run` starts another")
    lead = jobs[0]
    if STOPPED not in lead["metadata"].get("annotations", {}):
        raise OarlockError(f"{run} has ended on the cluster; `oarlock run` starts another")
    for job in jobs:
        change: Object = {"spec": {"suspend": False}, "metadata": {"annotations": {STOPPED: None}}}
        api.patch("Job", job["metadata"]["name"], change)


def scale(api: Api, job: str, count: int) -> None:
    """With no completions left a Job is complete, and could never grow again."""
    change = {"parallelism": count, **({"completions": count} if count else {})}
    api.patch("Job", job, {"spec": change})


def delete(api: Api, run: str, *, now: bool, patience: float) -> None:
    """Everything but the claims, and wait until none of it is left. Raises OarlockError if some is."""
    labels = selecting(run)
    for kind in KINDS:
        api.delete_all(kind, labels)
    if now:
        for pod in api.all("Pod", labels):
            api.delete("Pod", pod["metadata"]["name"], grace=0)
    left: list[str] = []

    def is_gone() -> bool:
        left[:] = remaining(api, run)
        return not left

    if not _wait(is_gone, patience):
        raise OarlockError(f"after {patience:g} s there is still {', '.join(left[:5])}")


def remaining(api: Api, run: str) -> list[str]:
    """What there is of the run on the cluster, claims apart."""
    found = [(kind, one) for kind in KINDS for one in api.all(kind, selecting(run))]
    return [f"{kind}/{one['metadata']['name']}" for kind, one in found]


def claims_of(api: Api, job: str) -> list[str]:
    """Those that Oarlock made for a job."""
    found = api.all("PersistentVolumeClaim", f"{MANAGED}=oarlock,{JOB}={job}")
    return [claim["metadata"]["name"] for claim in found]


def users_of(api: Api, job: str, but: Collection[str]) -> list[str]:
    """Other runs of the job that are on the cluster."""
    labels = [found["metadata"]["labels"] for found in api.all("Job", f"{MANAGED}=oarlock,{JOB}={job}")]
    return sorted({one[RUN] for one in labels if RUN in one} - set(but))


def delete_claims(api: Api, names: list[str], patience: float) -> None:
    for name in names:
        api.delete("PersistentVolumeClaim", name)

    def is_gone() -> bool:
        return not any(api.find("PersistentVolumeClaim", name) for name in names)

    if not _wait(is_gone, patience):
        raise OarlockError(f"after {patience:g} s there is still claim {', '.join(names)}")


def _wait(done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True
