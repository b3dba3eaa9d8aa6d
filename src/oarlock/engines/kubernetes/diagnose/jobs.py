"""Problems of the Jobs themselves: suspended, over time, or unable to create their pods. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from oarlock.engines.kubernetes.api.names import COMPLETE, INDEX, LEAD, ROLE, RUN, STOPPED, Object
from oarlock.engines.kubernetes.diagnose.admission import refusal
from oarlock.engines.kubernetes.diagnose.evidence import (
    Evidence,
    annotations_of,
    condition,
    labels_of,
    tasks_of,
)
from oarlock.engines.kubernetes.diagnose.problem import Finding, Weight, cut
from oarlock.job.cluster_names import QUEUE

_SUBMITTED = 60.0  # seconds; a submission takes less than one


def is_at_rest(job: Object) -> bool:
    """Whether the Job is complete, stopped or being deleted."""
    return (
        "deletionTimestamp" in job["metadata"]
        or STOPPED in annotations_of(job)
        or condition(job, "Complete").get("status") == "True"
    )


def is_lead(job: Object) -> bool:
    """Whether it is the leading Job."""
    return LEAD in labels_of(job)


def troubled(job: Object, evidence: Evidence) -> Iterator[Finding]:
    """Yield the problems of a Job."""
    if failure := failed(job):
        if failure.get("reason") == "DeadlineExceeded":
            yield _overdue(job)
        return
    if job["spec"].get("suspend"):
        yield from _suspended(job, evidence)
        return
    yield from _without_pods(job, evidence)


def failed(job: Object) -> Object:
    """The condition that says why a Job failed; empty if it did not."""
    for kind in ("FailureTarget", "Failed"):
        if (found := condition(job, kind)).get("status") == "True":
            return found
    return {}


def unexplained(job: Object) -> Finding | None:
    """The finding for a failed Job whose pods do not say why."""
    failure = failed(job)
    if not failure:
        return None
    said = f"Kubernetes gave up on it: {cut(str(failure.get('message') or failure.get('reason')), 140)}"
    return Finding(Weight.RUN, "", said, "oarlock logs may say why; run it again")


def _overdue(job: Object) -> Finding:
    limit = job["spec"].get("activeDeadlineSeconds", "?")
    said = f"the run was ended after {limit} s, the limit that limits.runtime sets"
    return Finding(Weight.RUN, "", said, "allow more with --set limits.runtime=..., or none")


def _suspended(job: Object, evidence: Evidence) -> Iterator[Finding]:
    run = labels_of(job).get(RUN, job["metadata"]["name"])
    queue = labels_of(job).get(QUEUE)
    is_complete = COMPLETE in annotations_of(job)
    if queue and is_complete:
        said = f"the run waits in queue {queue} for Kueue to admit it"
        fix = f"wait; kubectl describe localqueue {queue} says how full it is, if the cluster has Kueue"
        yield Finding(Weight.RUN, "", said, fix)
    elif is_complete:
        resume = """--type merge -p '{"spec":{"suspend":false}}'"""
        fix = f"resume it: kubectl patch job {job['metadata']['name']} {resume}"
        yield Finding(Weight.RUN, "", "the run is suspended, and not by Oarlock", fix)
    elif evidence.age(job["metadata"].get("creationTimestamp")) > _SUBMITTED:
        said = "the run was never started: the command that sent it did not finish"
        yield Finding(Weight.RUN, "", said, f"oarlock delete {run}, and run it again")


def _without_pods(job: Object, evidence: Evidence) -> Iterator[Finding]:
    pods = evidence.pods_of(job)
    there = {int(labels_of(pod).get(INDEX, -1)) for pod in pods}
    wanted = min(job["spec"].get("parallelism") or 1, job["spec"].get("completions") or 1)
    tasks = tasks_of(job)[:wanted]
    lacking = [task for index, task in enumerate(tasks) if index not in there]
    if not lacking:
        return
    refused = evidence.about(job, "FailedCreate")
    if refused:
        said, fix = refusal(refused[0], labels_of(job["spec"]["template"]).get(ROLE, ""))
        yield from (Finding(Weight.REFUSED, task, said, fix) for task in lacking)
