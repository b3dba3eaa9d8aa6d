"""The problems that plain objects show, the most important first. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from oarlock.engines.kubernetes.api.names import INDEX, Object
from oarlock.engines.kubernetes.diagnose import containers, evictions, jobs, scheduling
from oarlock.engines.kubernetes.diagnose.evidence import Evidence, job_name, labels_of, statuses
from oarlock.engines.kubernetes.diagnose.problem import Finding, Problem, fold


def problems_in(
    jobs: Sequence[Object],
    pods: Sequence[Object],
    happenings: Sequence[Object] = (),
    claims: Sequence[Object] = (),
    *,
    now: float | None = None,
) -> list[Problem]:
    """The problems of a run, none while all is well or only just starting.

    Without `now`, the newest timestamp in the objects is the current time.
    """
    evidence = Evidence(jobs, pods, happenings, claims, now)
    return fold(_findings(evidence))


def _findings(evidence: Evidence) -> Iterator[Finding]:
    if any(jobs.is_lead(job) and jobs.is_at_rest(job) for job in evidence.jobs):
        yield from _memory(evidence)
        return
    resting = {job["metadata"]["name"] for job in evidence.jobs if jobs.is_at_rest(job)}
    found: list[Finding] = []
    for job in evidence.jobs:
        if job["metadata"]["name"] not in resting:
            found += jobs.troubled(job, evidence)
    for lives in _lives(evidence.pods):
        if job_name(lives[0]) not in resting and (finding := _of_task(lives, evidence)):
            found.append(finding)
    if not found:
        found += (finding for job in evidence.jobs if (finding := jobs.unexplained(job)))
    yield from found


def _of_task(lives: Sequence[Object], evidence: Evidence) -> Finding | None:
    """The problem of a task's newest pod; until that pod runs, also how the pod before it was lost."""
    newest, *earlier = lives
    found = _of_pod(newest, evidence)
    if found is None and earlier and newest["status"].get("phase") == "Pending":
        return evictions.lost(earlier[0], evidence)
    return found


def _of_pod(pod: Object, evidence: Evidence) -> Finding | None:
    return (
        evictions.lost(pod, evidence)
        or scheduling.unplaced(pod, evidence)
        or (None if "deletionTimestamp" in pod["metadata"] else containers.troubled(pod, evidence))
    )


def _lives(pods: Sequence[Object]) -> list[list[Object]]:
    """The pods of each task, the newest first."""
    found: dict[tuple[str, str], list[Object]] = {}
    for pod in pods:
        index = labels_of(pod).get(INDEX)
        key = (job_name(pod), index) if index is not None else ("", pod["metadata"]["name"])
        found.setdefault(key, []).append(pod)
    for lives in found.values():
        lives.sort(key=_born, reverse=True)
    return list(found.values())


def _born(pod: Object) -> tuple[str, bool, bool]:
    """When a pod was created, to the second; of two in one second, the one that stays is younger."""
    return (
        str(pod["metadata"].get("creationTimestamp", "")),
        "deletionTimestamp" not in pod["metadata"],
        pod["status"].get("phase") != "Failed",
    )


def _memory(evidence: Evidence) -> Iterator[Finding]:
    """The finding for a run that failed because a program ran out of memory.

    The agent survives and reports that the program was killed; Kubernetes reports that memory was the reason.
    (Where cgroup v2 kills the agent too, the container ends with 137.)
    """
    verdicts = [_verdict(status) for pod in evidence.pods for status in statuses(pod)]
    if not any(
        verdict.get("result") == "failed" and verdict.get("code") == containers.KILLED for verdict in verdicts
    ):
        return
    for pod in evidence.pods:
        if any(_ended(status).get("reason") == "OOMKilled" for status in statuses(pod)):
            yield containers.out_of_memory(pod, evidence)


def _verdict(status: Object) -> dict[str, Any]:
    try:
        verdict = json.loads(str(_ended(status).get("message", "")))
    except ValueError:
        return {}
    return verdict if isinstance(verdict, dict) else {}


def _ended(status: Object) -> Object:
    return (status.get("state") or {}).get("terminated") or {}
