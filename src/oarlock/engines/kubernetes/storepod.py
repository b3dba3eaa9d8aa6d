"""A pod that does nothing but mount the claims of a run that has ended, so that they can be read.

It is as harmless as one can be: read-only, without a token, with a deadline of its own for the case that
nobody comes back to delete it. It carries the run's label, so that `delete` finds it, and belongs to its
leading Job.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from oarlock.engines.kubernetes import groups, images, objects, pods
from oarlock.engines.kubernetes.api import Api, ApiError, Object
from oarlock.engines.kubernetes.labels import JOB, of_run
from oarlock.engines.kubernetes.parcel import Parcel
from oarlock.errors import OarlockError
from oarlock.job import Job, parse
from oarlock.runs import RunFolder

HELPER = "oarlock.dev/helper"  # a pod that is no task: what it is there for

_DEADLINE = 3600  # seconds; a pull takes less
_PATIENCE = 120.0
_FAREWELL = 10.0
_POLL = 0.2
_SLEEP = (
    f"import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); time.sleep({_DEADLINE})"
)
# What decides where a pod may run and as whom; all else of the leader's is not needed.
_KEPT = (
    "securityContext",
    "imagePullSecrets",
    "nodeSelector",
    "tolerations",
    "serviceAccountName",
    "schedulerName",
    "priorityClassName",
)


@contextmanager
def mounted(api: Api, run: RunFolder) -> Iterator[str]:
    """The name of a running pod with the run's claims at their places; deleted again, whatever happens."""
    lead = api.find("Job", f"{run.name}-lead")
    job = _job(run)
    template = lead["spec"]["template"] if lead else _template(run.name, job)
    manifest = _manifest(run.name, job.name, template["spec"])
    if not manifest["spec"]["volumes"]:
        raise OarlockError(f"{run.name} has ended and kept nothing: its job has no claim")
    _require(api, claims := _claims(manifest["spec"]))
    _share_node(api, manifest["spec"], claims)
    name = manifest["metadata"]["name"]
    is_refused = False
    try:
        try:
            api.create(objects.owned(manifest, lead) if lead else manifest)
        except ApiError as error:
            is_refused = not error.is_transient  # else it may be there, and only the answer got lost
            raise
        _wait(api, name)
        yield name
    finally:
        if not is_refused:
            _delete(api, name)


def _job(run: RunFolder) -> Job:
    return parse(yaml.safe_load((run.path / "job.yaml").read_text()))


def _template(run: str, job: Job) -> Object:
    """Of a leader that the cluster has forgotten (kubernetes.ttl); any image with a Python will do."""
    found = groups.of(job)
    framework = "none" if job.framework == "auto" else job.framework
    image = images.choose(job, found[0].part, framework).name
    parcel = Parcel(run, job, found, {found[0].name: image}, "", "", b"", b"", "")
    return pods.template(parcel, found[0], None)


def _manifest(run: str, job: str, spec: Object) -> Object:
    volumes = [one for one in spec["volumes"] if "persistentVolumeClaim" in one]
    names = [one["name"] for one in volumes]
    theirs = next(one for one in spec["containers"] if one["name"] == pods.CONTAINER)
    container: Object = {
        "name": pods.CONTAINER,
        "image": theirs["image"],
        "command": ["python3", "-c", _SLEEP],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": theirs["securityContext"],
        "volumeMounts": [{**one, "readOnly": True} for one in theirs["volumeMounts"] if one["name"] in names],
    }
    if theirs.get("imagePullPolicy"):
        container["imagePullPolicy"] = theirs["imagePullPolicy"]
    letters = "".join(random.SystemRandom().choices("bcdfghjkmnpqrstvwxz", k=4))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{run}-pull-{letters}", "labels": {**of_run(run), JOB: job, HELPER: "pull"}},
        "spec": {
            **{key: spec[key] for key in _KEPT if spec.get(key)},
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _DEADLINE,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
            "volumes": volumes,
        },
    }


def _claims(spec: Object) -> set[str]:
    volumes = spec.get("volumes") or []
    return {one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one}


def _require(api: Api, claims: set[str]) -> None:
    """A pod would wait for one that is gone."""
    for name in sorted(claims):
        if api.find("PersistentVolumeClaim", name) is None:
            raise OarlockError(
                f"claim {name} is gone from namespace {api.namespace}, and what it held with it"
            )


def _share_node(api: Api, spec: Object, claims: set[str]) -> None:
    """A claim that only one node may mount, and that another run of the job uses: go to that node."""
    for pod in api.all("Pod", fields="status.phase=Running"):
        if _claims(pod["spec"]) & claims:
            term = {"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}
            required = {"nodeSelectorTerms": [{"matchFields": [term]}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
            return


def _wait(api: Api, name: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        pod = api.get("Pod", name)
        if is_up(pod):
            return
        if pod["status"].get("phase") in ("Failed", "Succeeded") or time.monotonic() > deadline:
            raise OarlockError(f"the pod that mounts its claim does not start: {_why(pod)}")
        time.sleep(_POLL)


def _delete(api: Api, name: str) -> None:
    """Tried for a while: an API server that is away comes back, and one that comes up refuses at first. After
    that its deadline ends the pod."""
    until = time.monotonic() + _FAREWELL
    while time.monotonic() < until:
        try:
            api.delete("Pod", name, grace=0)
            return
        except ApiError:
            time.sleep(_POLL)


def is_up(pod: Object) -> bool:
    """Whether its container runs, and will for a while."""
    return "deletionTimestamp" not in pod["metadata"] and any(
        one["name"] == pods.CONTAINER and "running" in one.get("state", {})
        for one in pod["status"].get("containerStatuses") or []
    )


def _why(pod: Object) -> str:
    status: dict[str, Any] = pod["status"]
    for one in status.get("containerStatuses") or []:
        for state in one.get("state", {}).values():
            if state.get("reason") not in (None, "ContainerCreating"):
                return f"{state['reason']}: {state.get('message', '')}".strip(": ")
    for condition in status.get("conditions") or []:
        if condition["status"] == "False" and condition.get("message"):
            return str(condition["message"]).partition(". ")[0]
    return str(status.get("reason") or status.get("phase"))
