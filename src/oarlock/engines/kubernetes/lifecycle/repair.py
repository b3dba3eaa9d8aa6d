"""Finish what a client began before it died: sending, stopping or scaling a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import COMPLETE, LEAD, ROLE, STOPPED, Object
from oarlock.engines.kubernetes.lifecycle import identity, stop_delete, submit
from oarlock.engines.kubernetes.lifecycle.connect import explained
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder


def repair(api: Api, jobs: Sequence[Object]) -> None:
    """Stop the Jobs of a run that is stopped, and resume those of a run that is not."""
    lead = _complete(jobs)
    if lead is None:
        return
    is_stopped = STOPPED in _notes(lead)
    for job in jobs:
        is_suspended = bool(job["spec"].get("suspend"))
        if is_stopped and not is_suspended:
            api.change("Job", job, {"spec": {"suspend": True}})
        elif not is_stopped and is_suspended and not lead["spec"].get("suspend"):
            submit.resume(api, job)


def match(api: Api, jobs: Sequence[Object], workers: int | None) -> None:
    """Give the Job as many pods as the leader was last asked to have workers.

    A client asks the leader before it changes the Job. A reader of the Jobs and then of the leader's events
    therefore never has events that are older than the Jobs.
    """
    lead = _complete(jobs)
    if workers is None or lead is None or STOPPED in _notes(lead):
        return
    followers = [job for job in jobs if job is not lead and _role(job) == "worker"]
    count = workers - (_role(lead) == "worker")
    if len(followers) == 1 and followers[0]["spec"].get("parallelism") != count:
        stop_delete.scale(api, followers[0], count)


def settle_unsent() -> None:
    """Finish or remove what clients that died have sent only in part."""
    for known in runs.all_runs():
        if known.cluster_file.exists() and (known.path / submit.UNSENT).exists():
            with suppress(OarlockError), explained():  # its cluster may be away: the next start tries again
                settle(known, identity.reach(known))


def settle(run: RunFolder, api: Api) -> bool:
    """Whether the run exists, after repairing a run whose client died while sending it.

    Such a run is resumed if all of it was created, and deleted with its record if not.
    """
    if not (run.path / submit.UNSENT).exists():
        return True
    try:
        held = run.hold(seconds=0)
    except OarlockError:
        return True  # a client is sending it right now
    try:
        who = identity.of(run)
        jobs = submit.jobs_of(api, who)
        if _complete(jobs) is not None:
            repair(api, jobs)
            (run.path / submit.UNSENT).unlink()
            return True
        stop_delete.delete(api, who, now=True, patience=stop_delete.GOING)
        run.remove()
        return False
    finally:
        os.close(held)


def _complete(jobs: Sequence[Object]) -> Object | None:
    """The leading Job of a run that was sent completely."""
    return next((job for job in jobs if LEAD in job["metadata"]["labels"] and COMPLETE in _notes(job)), None)


def _notes(job: Object) -> Object:
    return job["metadata"].get("annotations") or {}


def _role(job: Object) -> str:
    return str(job["spec"]["template"]["metadata"]["labels"].get(ROLE, ""))
