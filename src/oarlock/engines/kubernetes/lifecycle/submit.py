"""Send a run to a cluster, in an order in which the client may die at any point.

    1  a dry run of one pod per group: admission refuses now what it would refuse later
    2  the leading Job, suspended: it owns all that follows, and nothing runs yet
    3  ConfigMaps, Secret, Service, NetworkPolicy, claims; the other Jobs, suspended
    4  the leading Job is resumed and marked as complete, then the others

Before 4 nothing runs, and the next command deletes what a dead client has left (`repair`). A client that dies
within 4 leaves a leader that waits for the others. The next command on the run resumes them; without one the
leader gives up after limits.rendezvous.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from datetime import datetime

import yaml

from oarlock.agent.protocol.pod_paths import PORT
from oarlock.agent.protocol.spec import Spec
from oarlock.engines.kubernetes.api import names
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api, uid_of
from oarlock.engines.kubernetes.api.names import COMPLETE, LEAD, MANAGED, OWNER, Identity, Object
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.kubernetes.manifests import objects, pod_template
from oarlock.engines.kubernetes.manifests.payload import Parcel
from oarlock.errors import JobError
from oarlock.job.cluster_names import QUEUE
from oarlock.job.job_file import JobFile
from oarlock.job.model import to_data
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.run import cluster, run_events
from oarlock.run.typed import VERSION
from oarlock.system.atomic_file import write_durably

_STALE = 300.0  # seconds, of the server's; a submission takes less than one
_TRIES = 5
UNSENT = "unsent"  # a file in the record, until all of the run has been created


def start(
    jobfile: JobFile, name: str | None, api: Api, on_packed: Callable[[Parcel], None] = lambda _: None
) -> RunFolder:
    """Write the record, then create the objects; without the objects there is no record.

    `on_packed` gets what will be sent before any of it is.
    """
    from oarlock.engines.kubernetes.manifests import packing  # which no other verb needs

    clear_stale(api)
    held: list[int] = []
    parcels: list[Parcel] = []
    id, owner = secrets.token_hex(8), api.user

    def fill(draft: RunFolder) -> None:
        parcels.append(packing.pack(jobfile, draft.name, is_new=name is None, id=id, owner=owner))
        _fill(draft, jobfile, api, parcels[-1])
        held.append(draft.hold())  # a record that is half sent and not locked is a dead client's

    for _ in range(_TRIES):
        run = runs.create(jobfile.job.name, fill, name)
        try:
            parcel = parcels.pop()
            on_packed(parcel)
            identity.note(run, submit(api, parcel))
            (run.path / UNSENT).unlink()
            return run
        except ApiError as error:
            run.remove()
            if error.status != 409 or error.reason != "AlreadyExists":
                raise
            if name is not None:
                raise JobError(
                    f"there is a run called {name} in namespace {api.namespace}: choose another --name"
                ) from None
        except BaseException:
            run.remove()
            raise
        finally:
            os.close(held.pop())
    raise JobError(f"no free name for a run of {jobfile.job.name} in namespace {api.namespace}")


def submit(api: Api, parcel: Parcel) -> Object:
    """Create all objects and return the leading Job. If it raises, nothing runs, and Kubernetes deletes what
    the Job owns."""
    for group in parcel.groups:
        api.create(_pod(parcel, pod_template.template(parcel, group, names.NOWHERE)), dry_run=True)
    lead = api.create(objects.job(parcel, parcel.leader))
    try:
        made = {parcel.leader.name: lead, **_create_rest(api, parcel, lead)}
        for group in parcel.groups:
            resume(api, made[group.name])
    except BaseException:
        api.delete("Job", lead["metadata"]["name"], only=uid_of(lead))
        raise
    return lead


def resume(api: Api, job: Object) -> None:
    """Mark a Job as complete and resume it; Kueue resumes a Job in its queue."""
    marks = {"metadata": {"annotations": {COMPLETE: "true"}}}
    is_queued = QUEUE in job["metadata"]["labels"]
    api.change("Job", job, marks if is_queued else {**marks, "spec": {"suspend": False}})


def clear_stale(api: Api) -> None:
    """Delete what a client of this user left that died before its run was complete.

    Runs of other users stay: they may be under way. Ages are by the server's clock: ours may be wrong.
    """
    left = [job for job in api.all("Job", f"{MANAGED}=oarlock,{LEAD}=true") if _is_half_sent(job)]
    now = api.time() if left else None
    for job in left:
        metadata = job["metadata"]
        is_mine = metadata.get("annotations", {}).get(OWNER) == api.user
        if is_mine and now is not None and now - seconds(metadata["creationTimestamp"]) > _STALE:
            # Only in this version: another client may resume it at this moment.
            seen = {"resourceVersion": metadata["resourceVersion"], **uid_of(job)}
            api.delete("Job", metadata["name"], only=seen)


def _is_half_sent(job: Object) -> bool:
    return bool(job["spec"].get("suspend")) and COMPLETE not in job["metadata"].get("annotations", {})


def jobs_of(api: Api, run: Identity) -> list[Object]:
    """The run's Jobs."""
    return api.all("Job", run.selector)


def _create_rest(api: Api, parcel: Parcel, lead: Object) -> dict[str, Object]:
    """Create everything but the leading Job; returns the other Jobs by group."""
    for manifest in (*objects.config_maps(parcel), objects.secret(parcel)):
        api.create(objects.owned(manifest, lead))
    service = api.create(objects.owned(objects.service(parcel), lead))
    api.create(objects.owned(objects.network_policy(parcel), lead))
    for claim in objects.claims(parcel):
        try:
            api.create(claim)
        except ApiError as error:
            if error.status != 409:
                raise
            found = api.find("PersistentVolumeClaim", claim["metadata"]["name"])
            _check_claim(found, claim, parcel)  # an earlier run of the job has made it
    # The address, not the name: a cluster's DNS may remember for 30 s that there was none.
    coordinator = f"{service['spec']['clusterIP']}:{PORT}"
    return {
        group.name: api.create(objects.owned(objects.job(parcel, group, coordinator=coordinator), lead))
        for group in parcel.groups[1:]
    }


def _check_claim(found: Object | None, wanted: Object, parcel: Parcel) -> None:
    name = wanted["metadata"]["name"]
    if found is None or "deletionTimestamp" in found["metadata"]:
        raise JobError(f"the claim {name} of earlier runs is being deleted: run it again once it is gone")
    if why := objects.not_ours(found, parcel):
        raise JobError(why)


def _pod(parcel: Parcel, template: Object) -> Object:
    metadata = {**template["metadata"], "generateName": f"{parcel.run}-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def fill(draft: RunFolder, written: str, spec: Spec, created: float) -> None:
    """Write the first files of a record: job, spec and first event."""
    job = draft.path / "job.yaml"
    write_durably(job, written.encode())
    os.utime(job, (created, created))
    write_durably(draft.path / "agent.json", spec.to_json().encode())
    tasks = [task.name for task in cluster.form(spec.sizes)]
    event = {"t": created, "kind": "run", "job": spec.job, "engine": "kubernetes", "tasks": tasks}
    write_durably(
        draft.path / "events.jsonl", run_events.encode({**event, "version": VERSION}).encode() + b"\n"
    )


def _fill(draft: RunFolder, jobfile: JobFile, api: Api, parcel: Parcel) -> None:
    """Write the record with the very spec that the pods get."""
    header = f"# {jobfile.source or jobfile.job.name}, as it was sent from {jobfile.folder}\n"
    (draft.path / UNSENT).touch()
    written = header + yaml.safe_dump(to_data(jobfile.job), sort_keys=False)
    identity.write(draft, api, parcel.id, sent_from=jobfile.folder)
    fill(draft, written, Spec.from_json(parcel.spec), time.time())


def seconds(stamp: str) -> float:
    """A timestamp of the API server as seconds since the epoch."""
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
