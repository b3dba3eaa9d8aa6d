"""Stop, resume, scale and delete a run on its cluster."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from oarlock.agent.protocol.spec import Spec
from oarlock.engines.kubernetes.api.client import Api, uid_of
from oarlock.engines.kubernetes.api.names import (
    JOB,
    LEAD,
    MANAGED,
    OWNER,
    RESULT,
    RUN,
    STOPPED,
    Identity,
    Object,
)
from oarlock.engines.kubernetes.lifecycle import identity, leading_agent, submit
from oarlock.engines.kubernetes.manifests import groups
from oarlock.engines.kubernetes.manifests.payload import Parcel
from oarlock.engines.shared import specs
from oarlock.errors import JobError, LaterRun, OarlockError
from oarlock.job.cluster_names import QUEUE
from oarlock.records.run_folder import RunFolder
from oarlock.run.typed import LaterVersion
from oarlock.system.polling import wait_for

# The kinds of a run's objects, in the order of deletion: first those that create others.
KINDS = ("Job", "Pod", "Service", "ConfigMap", "Secret", "NetworkPolicy")
_POLL = 0.1
GOING = 60.0  # seconds for objects to be gone, beyond the grace of their pods


def stop(api: Api, run: Identity, *, now: bool = False) -> None:
    """Suspend the run's Jobs: the pods get SIGTERM and the grace, and `resume` creates them again."""
    jobs = sorted(submit.jobs_of(api, run), key=lambda job: LEAD not in job["metadata"]["labels"])
    for job in jobs:
        change: Object = {"spec": {"suspend": True}}
        if LEAD in job["metadata"]["labels"]:
            change["metadata"] = {"annotations": {STOPPED: "stopped by the user"}}
        api.change("Job", job, change)
    if now:
        for pod in api.all("Pod", run.members):
            api.delete("Pod", pod["metadata"]["name"], grace=1, only=uid_of(pod))
        leading_agent.kill_tasks(api, run)


def resume(api: Api, run: Identity) -> Object:
    """Resume a run and return its leading Job: stopped Jobs are resumed, ended ones are created again."""
    jobs = sorted(submit.jobs_of(api, run), key=lambda job: LEAD not in job["metadata"]["labels"])
    if not jobs:
        raise OarlockError(f"{run.name} is no longer on the cluster; `oarlock run` starts another")
    if STOPPED not in jobs[0]["metadata"].get("annotations", {}) or _has_ended(api, run, jobs):
        parcel = unpacked(api, run, jobs)
        delete(api, run, now=True, patience=GOING)
        return submit.submit(api, parcel)
    _count_resumption(api, run)
    for job in jobs:
        change: Object = {"metadata": {"annotations": {STOPPED: None, RESULT: None}}}
        if QUEUE not in job["metadata"]["labels"]:  # Kueue resumes the Jobs in its queue
            change["spec"] = {"suspend": False}
        api.change("Job", job, change)
    return jobs[0]


def _has_ended(api: Api, run: Identity, jobs: list[Object]) -> bool:
    """Whether pods have given the run's verdict: it ended while it was being stopped. A Job never starts a
    pod for an index that is complete."""
    counted = any(job.get("status", {}).get("completedIndexes") for job in jobs)
    return counted or any(pod["status"].get("phase") == "Succeeded" for pod in api.all("Pod", run.members))


def _count_resumption(api: Api, run: Identity) -> None:
    """Tell the next leader to continue whatever its record says: a worker that is stopped before the leader
    may have failed the run, and the leader's pod was ended before it could complete its index."""
    for found in api.all("ConfigMap", run.selector):
        if "spec.json" in (found.get("data") or {}):
            spec = spec_in(found["data"], run.name)
            again = replace(spec, resumed=spec.resumed + 1)
            api.change("ConfigMap", found, {"data": {"spec.json": again.to_json()}})


def unpacked(api: Api, run: Identity, jobs: list[Object]) -> Parcel:
    """Make a parcel of a run's own objects, to send it again with its current size."""
    maps = api.all("ConfigMap", run.selector)
    binary = {name: data for one in maps for name, data in (one.get("binaryData") or {}).items()}
    data = {name: text for one in maps for name, text in (one.get("data") or {}).items()}
    spec = spec_in(data, run.name)
    job = specs.job_of(data["job.yaml"], f"job.yaml of {run.name}")
    known = {one["metadata"]["name"].removeprefix(f"{run.name}-"): one["spec"] for one in jobs}
    parts = sorted(name for name in binary if name.startswith("program.tar.gz."))
    return Parcel(
        run=run.name,
        job=job,
        groups=tuple(replace(group, count=known[group.name]["parallelism"]) for group in groups.of(job)),
        images={name: one["template"]["spec"]["containers"][0]["image"] for name, one in known.items()},
        spec=replace(spec, resumed=spec.resumed + 1).to_json(),
        written=data["job.yaml"],
        agent=base64.b64decode(binary["agent.zip"]),
        program=b"".join(base64.b64decode(binary[name]) for name in parts),
        token=secrets.token_hex(32),
        framework="torch" if "torch" in spec.modules else "none",
        id=spec.id,
        owner=(jobs[0]["metadata"].get("annotations") or {}).get(OWNER, ""),  # it keeps its owner
    )


def spec_in(data: Mapping[str, str], run: str) -> Spec:
    """Read the spec in a run's ConfigMap, which another version may have written. Raises OarlockError."""
    try:
        return Spec.from_json(data["spec.json"])
    except LaterVersion as later:
        raise LaterRun(run, later) from None
    except (ValueError, KeyError) as problem:
        raise OarlockError(f"the ConfigMap of {run} is damaged: {problem}") from None


def worker_job(run: RunFolder, api: Api, workers: int) -> tuple[Object | None, int]:
    """The Job of all workers but a leading one, and how many pods it needs for that many workers.

    Raises JobError if it cannot have that many.
    """
    found = submit.jobs_of(api, identity.of(run))
    if any(STOPPED in job["metadata"].get("annotations", {}) for job in found):
        raise JobError(f"{run.name} is being stopped; `oarlock run --resume {run.name}` resumes it then")
    jobs = [job for job in found if job["metadata"]["name"].startswith(f"{run.name}-worker")]
    if len(jobs) > 1:
        raise JobError(f"{run.name} has workers of several kinds: `scale` cannot choose between them")
    leads = not run.spec().sizes.get("chief")
    count = workers - leads
    if not jobs and count:
        raise JobError(
            f"{run.name} was started with one worker and has no Job for more; start it with min..max workers"
        )
    if not jobs:
        return None, 0
    return jobs[0], count


def scale(api: Api, job: Object, count: int) -> None:
    """Set the number of pods; completions stay at least 1, because a complete Job can never grow again."""
    change = {"parallelism": count, **({"completions": count} if count else {})}
    api.change("Job", job, {"spec": change})


def delete(api: Api, run: Identity, *, now: bool, patience: float) -> None:
    """Delete everything but the claims and wait until it is gone. Raises OarlockError if it is not."""
    for kind in KINDS:
        api.delete_all(kind, run.selector)
    if now:
        leading_agent.kill_tasks(api, run)
        for pod in api.all("Pod", run.selector):
            api.delete("Pod", pod["metadata"]["name"], grace=0, only=uid_of(pod))
    until_gone(run.name, lambda: remaining(api, run), patience)


def until_gone(name: str, remaining: Callable[[], list[str]], patience: float) -> None:
    """Wait until nothing remains. Raises OarlockError with what does."""
    left: list[str] = []

    def is_gone() -> bool:
        left[:] = remaining()
        return not left

    try:
        wait_for(is_gone, f"end of {name}", patience, _POLL)
    except TimeoutError:
        raise OarlockError(f"after {patience:g} s there is still {', '.join(left[:5])}") from None


def remaining(api: Api, run: Identity) -> list[str]:
    """The run's objects on the cluster, without claims, as kind/name."""
    found = [(kind, one) for kind in KINDS for one in api.all(kind, run.selector)]
    return [f"{kind}/{one['metadata']['name']}" for kind, one in found]


def claims_of(api: Api, job: str) -> list[Object]:
    """The claims that Oarlock created for a job."""
    return api.all("PersistentVolumeClaim", f"{MANAGED}=oarlock,{JOB}={job}")


def is_mine(api: Api, found: Object) -> bool:
    """Whether this user created it, or an earlier version that did not note the user."""
    return bool(found["metadata"].get("annotations", {}).get(OWNER, api.user) == api.user)


def users_of(api: Api, job: str, but: Collection[str]) -> list[str]:
    """The names of other runs of the job on the cluster."""
    labels = [found["metadata"]["labels"] for found in api.all("Job", f"{MANAGED}=oarlock,{JOB}={job}")]
    return sorted({one[RUN] for one in labels if RUN in one} - set(but))


def delete_claims(api: Api, claims: Collection[Object], patience: float) -> None:
    """Delete claims and wait until they are gone. Raises OarlockError if they are not."""
    for claim in claims:
        api.delete("PersistentVolumeClaim", claim["metadata"]["name"], only=uid_of(claim))
    left = {claim["metadata"]["uid"] for claim in claims}

    def is_gone() -> bool:
        found = api.all("PersistentVolumeClaim", f"{MANAGED}=oarlock") if left else []
        return not any(one["metadata"]["uid"] in left for one in found)

    try:
        wait_for(is_gone, "end of the claims", patience, _POLL)
    except TimeoutError:
        names = ", ".join(claim["metadata"]["name"] for claim in claims)
        raise OarlockError(f"after {patience:g} s there is still claim {names}") from None
