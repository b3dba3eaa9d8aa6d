"""The labels by which a run's objects are known. Pure."""

from __future__ import annotations

MANAGED = "app.kubernetes.io/managed-by"
JOB = "app.kubernetes.io/name"
RUN = "oarlock.dev/run"
ROLE = "oarlock.dev/role"
LEAD = "oarlock.dev/lead"
STOPPED = "oarlock.dev/stopped"  # an annotation: who stopped it meant to
RESULT = "oarlock.dev/result"  # an annotation: how the run ended
COMPLETE = "oarlock.dev/complete"  # an annotation: all of the run was created
QUEUE = "kueue.x-k8s.io/queue-name"
INDEX = "batch.kubernetes.io/job-completion-index"


def of_run(run: str) -> dict[str, str]:
    return {MANAGED: "oarlock", RUN: run}


def selecting(run: str) -> str:
    return f"{RUN}={run}"


def members(run: str) -> str:
    """The pods that train; others of the run's are only there to look at it."""
    return f"{RUN}={run},{ROLE}"
