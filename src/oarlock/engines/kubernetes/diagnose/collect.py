"""Collect from the cluster what a diagnosis needs, with as many calls for 2,000 pods as for two."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Identity, Object
from oarlock.engines.kubernetes.diagnose import claims, containers
from oarlock.engines.kubernetes.diagnose.evidence import claim_names, condition, job_name
from oarlock.engines.kubernetes.diagnose.problem import Problem
from oarlock.engines.kubernetes.diagnose.rules import problems_in

_PODS = 3  # pods whose events are read
_CLAIMS = 3


def find_problems(
    api: Api, run: Identity, pods: Sequence[Object] | None = None, jobs: Sequence[Object] | None = None
) -> list[Problem]:
    """Diagnose a run. Raises ApiError if the cluster does not answer: `explain` says what that means."""
    if jobs is None:
        jobs = api.all("Job", run.selector)
    if pods is None:
        pods = api.all("Pod", run.members)
    wanting = _claims(api, pods)
    happenings: list[Object] = []
    for item in (*jobs, *_troubled(pods), *wanting):
        happenings += api.all("Event", fields=f"involvedObject.uid={item['metadata']['uid']}")
    return problems_in(jobs, pods, happenings, wanting, now=time.time())


def _troubled(pods: Iterable[Object]) -> list[Object]:
    """The pods whose events say more than their status; one of each Job before a second one."""
    waiting = [
        pod for pod in pods if containers.is_unpulled(pod) or containers.is_starting(pod) or _is_unplaced(pod)
    ]
    seen: dict[str, int] = {}
    ranked = []
    for pod in waiting:
        rank = seen[job_name(pod)] = seen.get(job_name(pod), -1) + 1
        ranked.append((rank, pod))
    return [pod for _, pod in sorted(ranked, key=lambda one: one[0])[:_PODS]]


def _claims(api: Api, pods: Iterable[Object]) -> list[Object]:
    """The claims that pods wait for."""
    names = dict.fromkeys(
        name
        for pod in pods
        if _is_unplaced(pod) and claims.concerns(condition(pod, "PodScheduled").get("message", ""))
        for name in claim_names(pod)
    )
    found = [api.find("PersistentVolumeClaim", name) for name in list(names)[:_CLAIMS]]
    return [claim for claim in found if claim is not None]


def _is_unplaced(pod: Object) -> bool:
    return condition(pod, "PodScheduled").get("status") == "False"
