"""The names that a run's objects have: labels, annotations, container and volumes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]  # as the API server gives it

MANAGED = "app.kubernetes.io/managed-by"
JOB = "app.kubernetes.io/name"
RUN = "oarlock.dev/run"
ID = "oarlock.dev/id"  # this run's alone: another run may get the same name later
ROLE = "oarlock.dev/role"
LEAD = "oarlock.dev/lead"
STOPPED = "oarlock.dev/stopped"  # an annotation: the user stopped the run
RESULT = "oarlock.dev/result"  # an annotation: how the run ended
OWNER = "oarlock.dev/owner"  # an annotation: the user who sent the run
COMPLETE = "oarlock.dev/complete"  # an annotation: all of the run was created
BY_INGEST = "oarlock.dev/by-ingest"  # an annotation of a pod: what it asks for because of the ingest
HELPER = "oarlock.dev/helper"  # on a pod that is not a task: its purpose
BOARD = "oarlock.dev/board"  # on a deployed TensorBoard: the run
REVISION = "oarlock.dev/revision"  # an annotation of a serving pod: which `oarlock serve` created it
REPLICAS = "oarlock.dev/replicas"  # an annotation of a stopped Deployment: how many pods it had
INDEX = "batch.kubernetes.io/job-completion-index"

SERVER = "server"  # the role of pods that serve a model
CONTAINER = "main"
STORE_VOLUME = "oarlock-store"
SHM_VOLUME = "oarlock-shm"
NOWHERE = "203.0.113.1:1"  # an address for documentation (RFC 5737), for a dry run: never connected to


@dataclass(frozen=True)
class Identity:
    """One run on a cluster. Its selectors never match another run of the same name."""

    name: str
    id: str = ""  # runs of earlier versions have none

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects of the run."""
        return {MANAGED: "oarlock", RUN: self.name, **({ID: self.id} if self.id else {})}

    @property
    def selector(self) -> str:
        """The selector of all objects of the run."""
        return f"{selecting(self.name)},{f'{ID}={self.id}' if self.id else f'!{ID}'}"

    @property
    def members(self) -> str:
        """The selector of the pods that train; other pods of the run only inspect it."""
        return f"{self.selector},{ROLE}"

    @property
    def leading(self) -> str:
        """The selector of the leading Job and its pod."""
        return f"{self.selector},{LEAD}=true"


def selecting(run: str) -> str:
    """The selector of every run with this name: to read, not to change."""
    return f"{MANAGED}=oarlock,{RUN}={run}"
