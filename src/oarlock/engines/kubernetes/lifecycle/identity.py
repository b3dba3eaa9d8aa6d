"""The run and the cluster that a record is about: cluster.json.

    namespace, context, server      where it was sent to
    id                              the label that all its objects carry
    lead                            the uid of its leading Job, or of its Deployment, as last seen
    engine                          the engine that acts on it, if it is not the one that trains
    sent_from                       the program's folder, if this machine sent it; else it was adopted

A name and a context may mean something else tomorrow. So a verb acts only on the server that the record names
and on a run with that id. Anything else stays as it is, and the verb says so.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

from oarlock.agent.protocol.spec import Spec
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import ID, MANAGED, OWNER, Identity, Object
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.run.typed import VERSION
from oarlock.system.atomic_file import write_durably

_FILE = "cluster.json"
_SENDING = 120.0  # seconds between the record of an earlier version and its leading Job, two clocks apart


def write(run: RunFolder, api: Api, id: str, *, sent_from: Path | None = None, engine: str = "") -> None:
    """Write the record's place, before anything is sent."""
    place = {"namespace": api.namespace, "context": api.context, "server": api.server, "id": id}
    more = {"sent_from": str(sent_from) if sent_from else "", "engine": engine}
    _replace(run, {**place, **{name: value for name, value in more.items() if value}})


def is_on_cluster(run: RunFolder | None) -> TypeGuard[RunFolder]:
    """Return whether a record says which cluster has the run."""
    return run is not None and run.cluster_file.exists()


def of(run: RunFolder) -> Identity:
    """The name and id of a record's run."""
    return Identity(run.name, str(_read(run).get("id", "")))


def reach(run: RunFolder) -> Api:
    """Connect to the server and namespace that the run was sent to. Raises if its context has moved."""
    place = _read(run)
    api = Api(place.get("context"), place["namespace"])
    sent_to = str(place.get("server") or api.server)
    if api.server.rstrip("/") != sent_to.rstrip("/"):
        raise OarlockError(
            f"{run.name} was sent to {sent_to}, and context {api.context} leads to {api.server} now: "
            f"nothing was done; point the context back, or, if that is the same cluster by a new address, "
            f"write it into {run.path / _FILE}"
        )
    return api


def require(run: RunFolder, api: Api) -> Object | None:
    """The leading Job; None if it was deleted. Raises if another run has the name now."""
    return _required(run, api, api.find("Job", f"{run.name}-lead"))


def require_deployment(run: RunFolder, api: Api) -> Object | None:
    """The Deployment of a served model; None if it was deleted. Raises if another one has the name now."""
    return _required(run, api, api.find("Deployment", run.name))


def _required(run: RunFolder, api: Api, lead: Object | None) -> Object | None:
    if lead is None:
        return None
    if not _is_same(run, api, lead):
        raise OarlockError(_another(run, api, lead))
    if _read(run).get("lead") != lead["metadata"]["uid"]:
        note(run, lead)
    return lead


def note(run: RunFolder, lead: Object) -> None:
    """Record the leading Job of a run that was just sent, or sent again."""
    labels, uid = lead["metadata"]["labels"], lead["metadata"]["uid"]
    _replace(run, {**_read(run), "id": labels.get(ID, ""), "lead": uid})


def disown(run: RunFolder) -> None:
    """Record that the job is no longer this machine's."""
    _replace(run, {name: value for name, value in _read(run).items() if name != "sent_from"})


def _is_same(run: RunFolder, api: Api, lead: Object) -> bool:
    metadata, place = lead["metadata"], _read(run)
    labels = metadata.get("labels") or {}
    if labels.get(MANAGED) != "oarlock":
        return False
    if place.get("lead") == metadata["uid"]:
        return True
    id = labels.get(ID)
    if id is not None:  # a resumed run has new Jobs and the same id
        return id in (place.get("id"), _spec(run).id)
    return "lead" not in place and not place.get("id") and _looks_same(run, api, metadata)


def _looks_same(run: RunFolder, api: Api, lead: Object) -> bool:
    """Compare a record and a Job of earlier versions, which have no id: they are of the same moment, or the
    record has read the log of one of the run's pods."""
    created = datetime.fromisoformat(lead["creationTimestamp"].replace("Z", "+00:00")).timestamp()
    if abs(created - run.created) < _SENDING:
        return True
    try:
        read = json.loads((run.path / "watched.json").read_bytes())["positions"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return any(pod["metadata"]["uid"] in read for pod in api.all("Pod", Identity(run.name).members))


def _another(run: RunFolder, api: Api, lead: Object) -> str:
    owner = (lead["metadata"].get("annotations") or {}).get(OWNER)
    return (
        f"the run called {run.name} in namespace {api.namespace} is not the one that was sent from here, "
        f"but a later one{f' of {owner}' if owner else ''}: it was left alone; "
        f"`oarlock delete --record {run.name}` forgets the record of yours"
    )


def _spec(run: RunFolder) -> Spec:
    return run.spec()


def _read(run: RunFolder) -> dict[str, Any]:
    return run.place()


def _replace(run: RunFolder, place: dict[str, Any]) -> None:
    write_durably(run.path / _FILE, json.dumps({"version": VERSION, **place}).encode())
