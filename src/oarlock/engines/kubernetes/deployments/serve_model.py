"""`oarlock serve --on kubernetes`: from an order to pods that answer, or to nothing."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.deployments import rollout, server_address, server_packing, server_record
from oarlock.engines.kubernetes.deployments.server_parcel import ServerParcel
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.kubernetes.lifecycle.connect import api_for, explained
from oarlock.engines.kubernetes.lifecycle.stop_delete import GOING
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.errors import JobError, OarlockError
from oarlock.job.model import Job, slug
from oarlock.records.run_folder import RunFolder
from oarlock.records.run_names import check_name

_PATIENCE = 1800.0  # seconds: an image may have to be pulled, packages installed, a large model loaded
_LONGEST = 40 - len("-serve")


def serve(order: ServeOrder, name: str | None, on_wait: Callable[[str], bool]) -> RunFolder:
    """Serve a model, or update what is served under that name; return its record once it answers."""
    name = name_of(order, name)
    with explained():
        api = cluster_of(order)
        found = _ours(api, name)
        run = server_record.known(name)
        if found is not None and not rollout.is_complete(found):
            rollout.delete(api, server_record.identity_of(found), now=True, patience=GOING)
            found = None
        if found is None:
            if run is not None:
                run.delete()  # its server is gone from the cluster
            return _begin(api, order, name, on_wait)
        if run is None:
            run = server_record.adopt(api, found)
        identity.require_deployment(run, api)
        return _update(api, order, run, found, on_wait)


def name_of(order: ServeOrder, name: str | None) -> str:
    """Return the name of record and objects: the same each time, so that the next `serve` updates it."""
    return check_name(name or usual_name(order.job))


def usual_name(job: Job) -> str:
    """Return the name of a job's server, unless another one is asked for."""
    return f"{slug(job.name)[:_LONGEST].strip('-')}-serve"


def cluster_of(order: ServeOrder) -> Api:
    """Return the cluster that the job names, or the one that has the run: its claim is there."""
    if not identity.is_on_cluster(order.run):
        return api_for(order.job)
    api = identity.reach(order.run)
    asked = order.job.kubernetes
    if asked.namespace not in (None, api.namespace) or asked.context not in (None, api.context):
        raise JobError(
            f"{order.run.name} is in namespace {api.namespace} of {api.context}, and its claim too: "
            "its model is served there"
        )
    return api


def _ours(api: Api, name: str) -> Object | None:
    """The Deployment of that name. Raises JobError if it is not Oarlock's, or another user's."""
    found = api.find("Deployment", name)
    if found is None:
        return None
    where = f"namespace {api.namespace}"
    if not server_record.is_ours(found):
        raise JobError(
            f"there is a Deployment called {name} in {where} that serves no model of Oarlock's: it was left "
            "alone; choose another --name"
        )
    owner = server_record.owner_of(found)
    if owner not in ("", api.user):
        raise JobError(
            f"{name} in {where} is {owner}'s, and you are {api.user}: it was left alone; "
            "choose another --name"
        )
    return found


def _begin(api: Api, order: ServeOrder, name: str, on_wait: Callable[[str], bool]) -> RunFolder:
    parcel = server_packing.pack(order, name, id=secrets.token_hex(8), owner=api.user)
    check_claims(api, parcel)
    run = server_record.create(parcel, api, order.sent_from, order.settings)
    try:
        made = _created(api, parcel)
        identity.note(run, made)
        try:
            rollout.wait(api, parcel.identity, _PATIENCE, on_wait)
        except BaseException:
            rollout.delete(api, parcel.identity, now=True, patience=GOING)
            raise
    except OarlockError as problem:
        run.delete()
        raise _failed(parcel, problem, "nothing was left") from None
    except BaseException:
        run.delete()
        raise
    server_address.note(api, run, made)
    return run


def _created(api: Api, parcel: ServerParcel) -> Object:
    try:
        return rollout.create(api, parcel)
    except ApiError as error:
        if error.status == 409 and error.reason == "AlreadyExists":
            raise JobError(
                f"{parcel.run} has just been created in namespace {api.namespace} by another user: "
                "choose another --name"
            ) from None
        raise


def _update(
    api: Api, order: ServeOrder, run: RunFolder, found: Object, on_wait: Callable[[str], bool]
) -> RunFolder:
    who, owner = identity.of(run), server_record.owner_of(found)
    parcel = server_packing.pack(order, run.name, id=who.id, owner=owner)
    parcel = replace(parcel, revision=rollout.revision_of(found) + 1)
    check_claims(api, parcel)
    made = rollout.update(api, parcel, found)
    try:
        rollout.wait(api, who, _PATIENCE, on_wait)
        rollout.settle(api, parcel, made)
    except BaseException as problem:
        rollout.revert(api, who, found)
        if isinstance(problem, OarlockError):
            raise _failed(parcel, problem, "what was served before still is") from None
        raise
    server_record.renew(run, parcel, order.settings, is_job_ours=order.is_job_ours)
    server_address.note(api, run, made)
    return run


def _failed(parcel: ServerParcel, problem: OarlockError, left: str) -> OarlockError:
    if isinstance(problem, (JobError, ApiError)):
        return problem
    return OarlockError(f"{parcel.run} does not start: {problem}; {left}")


def check_claims(api: Api, parcel: ServerParcel) -> None:
    """Raise if a claim is gone: a pod would wait for it forever."""
    for volume in parcel.claims.volumes:
        name = volume["persistentVolumeClaim"]["claimName"]
        claim = api.find("PersistentVolumeClaim", name)
        if claim is None:
            raise OarlockError(f"claim {name} is gone from namespace {api.namespace}, and the model with it")
        if claim["spec"].get("accessModes") == ["ReadWriteOncePod"]:
            raise OarlockError(
                f"only one pod may mount claim {name} (ReadWriteOncePod): `oarlock pull` the model and serve "
                "the folder, or serve it from a bucket"
            )
