"""Create, update, stop and delete the objects of a served model, and wait until it answers.

    1  a dry run of the pod: admission refuses now what it would refuse later
    2  the Deployment without pods: it owns all that follows, and nothing runs yet
    3  ConfigMaps, Secret, Service and the rest
    4  the Deployment gets its pods, and is marked as complete

A client that dies before 4 leaves a Deployment without pods, which the next `serve` of that name deletes. An
update changes the pods last. Until it is over, the old pods answer; if it fails, they stay.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api, uid_of
from oarlock.engines.kubernetes.api.names import (
    COMPLETE,
    REPLICAS,
    REVISION,
    STOPPED,
    Identity,
    Object,
)
from oarlock.engines.kubernetes.deployments import readiness, server_objects, server_pod
from oarlock.engines.kubernetes.deployments.server_parcel import ServerParcel
from oarlock.engines.kubernetes.lifecycle.stop_delete import GOING, until_gone
from oarlock.errors import JobError, OarlockError
from oarlock.system.polling import wait_for

# In the order of deletion: first those that create others.
KINDS = ("Deployment", *reversed(server_objects.STANDING), *server_objects.OWN, "Pod")
_NOT_EVERYWHERE = {"HTTPRoute": "the Gateway API"}
_POLL = 0.2


def create(api: Api, parcel: ServerParcel) -> Object:
    """Create everything and return the Deployment. If it raises, nothing is left."""
    api.create(_pod(parcel), dry_run=True)
    made = api.create(server_objects.deployment(parcel, 0))
    try:
        for manifest in (*server_objects.config_maps(parcel), *server_objects.access(parcel)):
            api.create(server_objects.owned(manifest, made))
        for manifest in server_objects.standing(parcel):
            _create(api, server_objects.owned(manifest, made))
        return _start(api, made, parcel.replicas.min)
    except BaseException:  # not left to the garbage collector, which may take its time
        delete(api, parcel.identity, now=True, patience=GOING)
        raise


def update(api: Api, parcel: ServerParcel, found: Object) -> Object:
    """Give a Deployment that answers the pods of a new revision. If it raises, the former ones stay."""
    api.create(_pod(parcel), dry_run=True)
    before = {
        (kind, one["metadata"]["name"]) for kind in server_objects.OWN for one in _all(api, kind, parcel)
    }
    try:
        for manifest in (*server_objects.config_maps(parcel), *server_objects.access(parcel)):
            if (manifest["kind"], manifest["metadata"]["name"]) not in before:
                api.create(server_objects.owned(manifest, found))
        return _replace_pods(api, parcel, found)
    except BaseException:
        with suppress(ApiError):
            clear(api, parcel.identity, found)
        raise


def settle(api: Api, parcel: ServerParcel, made: Object) -> None:
    """Once the pods of an update answer: change the objects beside them, and delete what only the old ones
    used. Raises JobError if another owner's object is in the way."""
    _renew_standing(api, parcel, made)
    clear(api, parcel.identity, made)


def revert(api: Api, run: Identity, before: Object) -> None:
    """Restore the pods that a Deployment had before an update, and delete what the update created."""
    now = api.get("Deployment", run.name)
    changes = [
        {"op": "test", "path": "/metadata/uid", "value": before["metadata"]["uid"]},
        {"op": "replace", "path": "/spec/template", "value": before["spec"]["template"]},
        {"op": "replace", "path": "/spec/replicas", "value": before["spec"].get("replicas", 1)},
    ]
    api.patch("Deployment", now["metadata"]["name"], changes, "json")
    clear(api, run, before)


def clear(api: Api, run: Identity, deployment: Object) -> None:
    """Delete the ConfigMaps and Secrets of other revisions than the Deployment's."""
    used = _used(deployment["spec"]["template"]["spec"])
    for kind in server_objects.OWN:
        for one in api.all(kind, run.selector):
            if one["metadata"]["name"] not in used:
                api.delete(kind, one["metadata"]["name"], only=uid_of(one))


def stop(api: Api, found: Object) -> None:
    """Remove all pods until `resume`. An autoscaler leaves a Deployment without pods alone."""
    notes = {STOPPED: "stopped by the user", REPLICAS: str(found["spec"].get("replicas", 1) or 1)}
    api.change("Deployment", found, {"metadata": {"annotations": notes}, "spec": {"replicas": 0}})


def resume(api: Api, found: Object) -> None:
    """Give a stopped Deployment its pods again."""
    count = (found["metadata"].get("annotations") or {}).get(REPLICAS, "1")
    scale(api, found, int(count) if count.isdecimal() else 1)


def scale(api: Api, found: Object, count: int) -> Object:
    """Set the number of pods."""
    notes = {"metadata": {"annotations": {STOPPED: None, REPLICAS: None}}}
    return api.change("Deployment", found, {**notes, "spec": {"replicas": count}})


def delete(api: Api, run: Identity, *, now: bool, patience: float) -> None:
    """Delete everything and wait until it is gone. Raises OarlockError if it is not."""
    for kind in KINDS[:-1]:
        for one in listed(api, kind, run.selector):
            api.delete(kind, one["metadata"]["name"], only=uid_of(one))
    if now:
        for pod in api.all("Pod", run.selector):
            api.delete("Pod", pod["metadata"]["name"], grace=0, only=uid_of(pod))
    until_gone(run.name, lambda: remaining(api, run), patience)


def remaining(api: Api, run: Identity) -> list[str]:
    """The server's objects on the cluster, as kind/name."""
    found = [(kind, one) for kind in KINDS for one in listed(api, kind, run.selector)]
    return [f"{kind}/{one['metadata']['name']}" for kind, one in found]


def listed(api: Api, kind: str, labels: str) -> list[Object]:
    """All objects of a kind; none if the cluster does not have the kind or this user may not see it."""
    try:
        return api.all(kind, labels)
    except ApiError as error:
        if error.status == 403 or (error.status == 404 and kind in _NOT_EVERYWHERE):
            return []
        raise


def revision_of(deployment: Object) -> int:
    """The number of the `serve` that its pods belong to."""
    notes = deployment["spec"]["template"]["metadata"].get("annotations") or {}
    return int(notes.get(REVISION, "1"))


def is_complete(deployment: Object) -> bool:
    """Whether all of it was created."""
    return COMPLETE in (deployment["metadata"].get("annotations") or {})


def wait(api: Api, run: Identity, patience: float, on_wait: Callable[[str], bool]) -> None:
    """Wait until all pods of the newest revision answer, and no others are left.

    `on_wait` gets what delays them; False gives up. Raises OarlockError with the reason if they cannot
    answer, or do not in time.
    """
    progress = readiness.RolloutProgress(api, run, on_wait)
    try:
        wait_for(progress.is_ready, f"answer of {run.name}", patience, _POLL)
    except TimeoutError:
        raise OarlockError(progress.reason(f"it does not answer after {patience:g} s")) from None


def _start(api: Api, made: Object, count: int) -> Object:
    marks = {"metadata": {"annotations": {COMPLETE: "true"}}}
    return api.change("Deployment", made, {**marks, "spec": {"replicas": count}})


def _replace_pods(api: Api, parcel: ServerParcel, found: Object) -> Object:
    """Replace the whole template at once: a merge would keep what the new one no longer has."""
    notes = {**(found["metadata"].get("annotations") or {}), COMPLETE: "true"}
    count = found["spec"].get("replicas", 1)
    if not parcel.replicas.elastic or not parcel.replicas.min <= count <= parcel.replicas.max:
        count = parcel.replicas.min
    changes: list[Object] = [
        {"op": "test", "path": "/metadata/uid", "value": found["metadata"]["uid"]},
        {"op": "replace", "path": "/spec/template", "value": server_pod.template(parcel)},
        {"op": "replace", "path": "/spec/replicas", "value": count},
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {name: value for name, value in notes.items() if name not in (STOPPED, REPLICAS)},
        },
    ]
    return api.patch("Deployment", parcel.run, changes, "json")


def _renew_standing(api: Api, parcel: ServerParcel, owner: Object) -> None:
    wanted = {one["kind"]: one for one in server_objects.standing(parcel)}
    for kind in server_objects.STANDING:
        there = listed(api, kind, parcel.identity.selector)
        if kind in wanted and there:
            spec = {**({"tls": None} if kind == "Ingress" else {}), **wanted[kind]["spec"]}
            api.change(kind, there[0], {"spec": spec})
        elif kind in wanted:
            _create(api, server_objects.owned(wanted[kind], owner))
        else:
            for one in there:
                api.delete(kind, one["metadata"]["name"], only=uid_of(one))


def _create(api: Api, manifest: Object) -> None:
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    try:
        api.create(manifest)
    except ApiError as error:
        if error.status == 404 and kind in _NOT_EVERYWHERE:
            raise JobError(
                f"the cluster does not have {_NOT_EVERYWHERE[kind]}; --ingress alone makes an Ingress instead"
            ) from None
        if error.status == 403 and kind in _NOT_EVERYWHERE:
            raise JobError(
                f"you may not create an {kind} in namespace {api.namespace}, or the cluster does not have "
                f"{_NOT_EVERYWHERE[kind]}: the role edit alone does not allow it; ask the administrator, or "
                "leave out --gateway for an Ingress"
            ) from None
        if error.status == 409 and error.reason == "AlreadyExists":
            raise JobError(
                f"there is a {kind} called {name} in namespace {api.namespace} that is not Oarlock's: it was "
                "left alone; choose another --name"
            ) from None
        raise


def _pod(parcel: ServerParcel) -> Object:
    template = server_pod.template(parcel)
    metadata = {**template["metadata"], "generateName": f"{parcel.run}-"}
    spec = {**template["spec"], "restartPolicy": "Always"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _all(api: Api, kind: str, parcel: ServerParcel) -> list[Object]:
    return api.all(kind, parcel.identity.selector)


def _used(spec: Object) -> set[str]:
    """The ConfigMaps and Secrets that a pod mounts."""
    found = set()
    for volume in spec.get("volumes") or []:
        sources = (volume.get("projected") or {}).get("sources") or []
        found |= {one["configMap"]["name"] for one in sources if "configMap" in one}
        if "secret" in volume:
            found.add(volume["secret"]["secretName"])
    return found
