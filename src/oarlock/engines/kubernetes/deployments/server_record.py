"""The record of a served model on this machine: created, adopted and brought up to date."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

from oarlock.agent.protocol.spec import LimitsSpec, Program, Spec
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import ID, JOB, MANAGED, OWNER, ROLE, RUN, SERVER, Identity, Object
from oarlock.engines.kubernetes.deployments import rollout
from oarlock.engines.kubernetes.deployments.server_mirror import ServerMirror
from oarlock.engines.kubernetes.deployments.server_parcel import ServerParcel
from oarlock.engines.kubernetes.follow import background
from oarlock.engines.kubernetes.lifecycle import identity, submit
from oarlock.errors import JobError, OarlockError
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.run import run_events
from oarlock.run.typed import VERSION
from oarlock.serving.settings import Settings
from oarlock.system.atomic_file import write_durably

ENGINE = "kubernetes-serving"


def known(name: str) -> RunFolder | None:
    """Return the record of that whole name, if it is one of a served model. Raises JobError for others."""
    found = next((run for run in runs.all_runs() if run.name == name), None)
    if found is not None and found.engine != ENGINE:
        raise JobError(f"there is a run called {name}: choose another --name, or `oarlock delete {name}`")
    return found


def create(parcel: ServerParcel, api: Api, folder: Path | None, settings: Settings) -> RunFolder:
    """Create the record of a model that is about to be served. `settings`: with this machine's paths.

    `folder`: the job's; None if another machine sent that job, which this record must not make trusted.
    """

    def fill(draft: RunFolder) -> None:
        identity.write(draft, api, parcel.id, sent_from=folder, engine=ENGINE)
        _fill(draft, parcel.written, settings, spec_of(parcel), time.time())

    return runs.create(parcel.job.name, fill, parcel.run)


def adopt(api: Api, found: Object) -> RunFolder:
    """Create the record of a model that another machine serves. Raises OarlockError if it is damaged."""
    metadata = found["metadata"]
    name, labels = metadata["name"], metadata["labels"]
    try:
        maps = [one for one in _used(found) if one.endswith("-0")]
        data = api.get("ConfigMap", maps[0])["data"]
        settings = Settings.from_json(data["settings.json"])
        written = str(data["job.yaml"])
    except (ValueError, KeyError, IndexError):
        raise OarlockError(f"the ConfigMap of {name} is damaged, or a later Oarlock's") from None
    spec = _spec(name, labels[JOB], labels.get(ID, ""), settings)
    created = submit.seconds(metadata["creationTimestamp"])

    def fill(draft: RunFolder) -> None:
        identity.write(draft, api, labels.get(ID, ""), engine=ENGINE)
        identity.note(draft, found)
        _fill(draft, written, settings, spec, created)

    return runs.create(labels[JOB], fill, name)


def unrecorded() -> list[str]:
    """Return what is served in the current context's namespace and has no record here."""
    with closing(Api()) as api:
        found = rollout.listed(api, "Deployment", f"{MANAGED}=oarlock,{RUN}")
    recorded = {run.name for run in runs.all_runs()}
    return sorted({one["metadata"]["name"] for one in found if is_ours(one)} - recorded)


def is_ours(found: Object) -> bool:
    """Whether Oarlock made a Deployment to serve a model."""
    labels = found["metadata"].get("labels") or {}
    template = found["spec"]["template"]["metadata"].get("labels") or {}
    return labels.get(MANAGED) == "oarlock" and RUN in labels and template.get(ROLE) == SERVER


def owner_of(found: Object) -> str:
    """The user who made it, by the cluster's name for them."""
    return str((found["metadata"].get("annotations") or {}).get(OWNER, ""))


def renew(run: RunFolder, parcel: ServerParcel, settings: Settings, *, is_job_ours: bool) -> None:
    """Write what an update has changed, and reopen the record of a server that was stopped."""
    created = run.created
    if not is_job_ours:
        identity.disown(run)  # first: the job must not count as this machine's for a moment
    write_durably(run.job_file, parcel.written.encode())
    os.utime(run.job_file, (created, created))
    write_durably(run.spec_file, spec_of(parcel).to_json().encode())
    write_durably(run.serving_file, settings.to_json().encode())
    reopen(run)


def reopen(run: RunFolder) -> None:
    """Prepare the record of a stopped server for new events."""
    if run.state().is_over:
        background.reopen(run, seconds=10)


def spec_of(parcel: ServerParcel) -> Spec:
    """What the record says about a server: where its model is, and how long it may take to stop."""
    return _spec(parcel.run, parcel.job.name, parcel.id, parcel.settings)


def refresh(run: RunFolder, api: Api, *, with_logs: bool) -> None:
    """Bring the record up to date once. One that another client writes is up to date already."""
    try:
        held = run.hold(seconds=0)
    except OarlockError:
        return
    try:
        ServerMirror(run, api).catch_up(with_logs=with_logs)
    finally:
        os.close(held)


def following(
    run: RunFolder, reach: Callable[[RunFolder], Api]
) -> AbstractContextManager[Callable[[], bool]]:
    """Keep the record up to date inside a `with` block; the value says whether more may come."""
    return background.kept(run, lambda stop: ServerMirror(run, reach(run)).follow(stop))


def _used(deployment: Object) -> list[str]:
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    sources = next(one["projected"]["sources"] for one in volumes if one["name"] == "oarlock-code")
    return [one["configMap"]["name"] for one in sources]


def _spec(name: str, job: str, id: str, settings: Settings) -> Spec:
    return Spec(
        run=name,
        folder="",
        cwd="",
        program=Program("module", "oarlock.serving"),
        sizes={},
        folders={"model": settings.source},
        limits=LimitsSpec(grace=settings.grace + 10),
        job=job,
        id=id,
    )


def _fill(draft: RunFolder, written: str, settings: Settings, spec: Spec, created: float) -> None:
    write_durably(draft.serving_file, settings.to_json().encode())
    write_durably(draft.job_file, written.encode())
    os.utime(draft.job_file, (created, created))
    write_durably(draft.spec_file, spec.to_json().encode())
    event = {"t": created, "kind": "run", "job": spec.job, "engine": ENGINE, "tasks": [], "version": VERSION}
    begun = {"t": created, "kind": "agent", "pid": None}
    lines = "".join(f"{run_events.encode(one)}\n" for one in (event, begun))
    write_durably(draft.events_file, lines.encode())


def identity_of(found: Object) -> Identity:
    """The name and id of a Deployment."""
    metadata = found["metadata"]
    return Identity(metadata["name"], (metadata.get("labels") or {}).get(ID, ""))
