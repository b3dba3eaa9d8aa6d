"""A temporary pod that mounts a run's claims: for `pull` after the run has ended, for others at any time.

It does as little harm as possible: read-only unless a verb writes, without a token, with a deadline of its
own if no client deletes it. It has the run's label, so that `delete` finds it, but no role, because it is not
a task. The leading Job owns it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import CONTAINER, HELPER, JOB, Identity, Object
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.kubernetes.manifests import default_images, groups, objects, pod_template
from oarlock.engines.kubernetes.manifests.groups import Group
from oarlock.engines.kubernetes.manifests.payload import Parcel
from oarlock.engines.shared import specs
from oarlock.errors import OarlockError
from oarlock.job.model import Job
from oarlock.records.run_folder import RunFolder
from oarlock.system.polling import wait_for

_DEADLINE = 3600  # seconds; a pull takes less
_PATIENCE = 120.0
_FAREWELL = 10.0
_POLL = 0.2
_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"
_SLEEP = (
    f"import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); time.sleep({_DEADLINE})"
)
# The fields of the leader's pod that decide where it may run and as which user.
_KEPT = (
    "securityContext",
    "imagePullSecrets",
    "nodeSelector",
    "tolerations",
    "serviceAccountName",
    "schedulerName",
    "priorityClassName",
)


@dataclass(frozen=True)
class Purpose:
    """What the pod is for."""

    name: str  # in the pod's name and label
    command: tuple[str, ...]
    is_writable: bool = False
    image: str | None = None  # None: the leader's
    memory: tuple[str, str] = ("64Mi", "256Mi")  # request and limit


PULL = Purpose("pull", ("python3", "-I", "-c", _SLEEP))


@dataclass(frozen=True)
class Prepared:
    """A pod that can be created."""

    pod: Object
    owner: Object | None  # the leading Job, if the cluster still has it

    def owned(self, manifest: Object) -> Object:
        """The manifest, owned by the leading Job if there is one."""
        return objects.owned(manifest, self.owner) if self.owner else manifest


@contextmanager
def mounted(api: Api, run: RunFolder, purpose: Purpose = PULL) -> Iterator[str]:
    """Yield the name of a running pod that mounts the run's claims; it is always deleted."""
    prepared = prepare(api, run, purpose)
    prepared.pod["spec"]["activeDeadlineSeconds"] = _DEADLINE
    name = prepared.pod["metadata"]["name"]
    try:
        api.create(prepared.owned(prepared.pod))
        _wait(api, name)
        yield name
    finally:
        delete(api, "Pod", name)


def prepare(api: Api, run: RunFolder, purpose: Purpose) -> Prepared:
    """Make the pod's manifest, for a node where the claims can be mounted. Creates nothing."""
    lead = identity.require(run, api)
    who, job = identity.of(run), job_of(run)
    template = lead["spec"]["template"] if lead else template_of(run.name, job, groups.of(job)[0])
    pod = _manifest(who, job.name, template["spec"], purpose)
    if not claims_of(pod["spec"]):
        raise OarlockError(f"{run.name} keeps nothing that a pod could mount: its job has no claim")
    place(api, who, pod["spec"], f"`oarlock exec {run.name}` looks from inside a run")
    return Prepared(pod, lead)


def place(api: Api, run: Identity, spec: Object, otherwise: str) -> None:
    """Choose a node where the pod can mount its claims, if another pod uses them now.

    Raises OarlockError if a claim is gone, or only one pod may mount it; then `otherwise` is the advice.
    """
    claims = claims_of(spec)
    exclusive = _require(api, claims)
    user = _user(api, claims, run.leading) or _user(api, claims)
    if user and exclusive & claims_of(user["spec"]):
        name, owner = min(exclusive), user["metadata"]["name"]
        raise OarlockError(
            f"only one pod may mount claim {name} (ReadWriteOncePod), and {owner} does; {otherwise}"
        )
    if user:
        _share_node(spec, user["spec"])


def job_of(run: RunFolder) -> Job:
    """The job in the run's record."""
    return specs.job_of((run.path / "job.yaml").read_text(), str(run.path / "job.yaml"))


def template_of(run: str, job: Job, group: Group, framework: str = "none") -> Object:
    """The template of pods that no longer exist (kubernetes.ttl). `framework`: if the job names none; to
    look at files, any image with Python will do."""
    framework = framework if job.framework == "auto" else job.framework
    image = default_images.choose(job, group.part, framework).name
    parcel = Parcel(run, job, (group,), {group.name: image}, "", "", b"", b"", "", framework)
    return pod_template.template(parcel, group, None)


def new_name(run: str, purpose: str) -> str:
    """A name that no other pod has."""
    letters = "".join(random.SystemRandom().choices("bcdfghjkmnpqrstvwxz", k=4))
    return f"{run}-{purpose}-{letters}"


def _manifest(run: Identity, job: str, spec: Object, purpose: Purpose) -> Object:
    volumes = [one for one in spec["volumes"] if "persistentVolumeClaim" in one]
    names = [one["name"] for one in volumes]
    theirs = next(one for one in spec["containers"] if one["name"] == CONTAINER)
    mounts = [one for one in theirs["volumeMounts"] if one["name"] in names]
    if not purpose.is_writable:
        mounts = [{**one, "readOnly": True} for one in mounts]
    asked, allowed = purpose.memory
    container: Object = {
        "name": CONTAINER,
        "image": purpose.image or theirs["image"],
        "command": list(purpose.command),
        "workingDir": "/tmp",
        "env": [{"name": "HOME", "value": "/tmp"}],
        "resources": {"requests": {"cpu": "50m", "memory": asked}, "limits": {"memory": allowed}},
        "securityContext": theirs["securityContext"],
        "volumeMounts": [*mounts, {"name": "oarlock-tmp", "mountPath": "/tmp"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if theirs.get("imagePullPolicy") and not purpose.image:
        container["imagePullPolicy"] = theirs["imagePullPolicy"]
    labels = {**run.labels, JOB: job, HELPER: purpose.name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": new_name(run.name, purpose.name), "labels": labels},
        "spec": {
            **{key: spec[key] for key in _KEPT if spec.get(key)},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
            "volumes": [*volumes, {"name": "oarlock-tmp", "emptyDir": {}}],
        },
    }


def claims_of(spec: Object) -> set[str]:
    """The names of the claims that a pod mounts."""
    volumes = spec.get("volumes") or []
    return {one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one}


def _require(api: Api, claims: set[str]) -> set[str]:
    """Raise if a claim is gone, since a pod would wait for it. Returns those that only one pod may mount."""
    exclusive = set()
    for name in sorted(claims):
        claim = api.find("PersistentVolumeClaim", name)
        if claim is None:
            raise OarlockError(
                f"claim {name} is gone from namespace {api.namespace}, and what it held with it"
            )
        if claim["spec"].get("accessModes") == ["ReadWriteOncePod"]:
            exclusive.add(name)
    return exclusive


def _share_node(spec: Object, user: Object) -> None:
    """Place the pod on the node of the pod that uses the claim, since only one node may mount it.

    It gets that pod's tolerations, because admission may have added some, such as for a device's taint.
    """
    term = {"key": "metadata.name", "operator": "In", "values": [user["nodeName"]]}
    required = {"nodeSelectorTerms": [{"matchFields": [term]}]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    spec["tolerations"] = user.get("tolerations") or []


def _user(api: Api, claims: set[str], labels: str = "") -> Object | None:
    """A pod that mounts one of the claims."""
    found = api.all("Pod", labels, _ALIVE)
    return next(
        (pod for pod in found if pod["spec"].get("nodeName") and claims_of(pod["spec"]) & claims), None
    )


def _wait(api: Api, name: str) -> None:
    def is_running() -> bool:
        pod = api.get("Pod", name)
        if pod["status"].get("phase") in ("Failed", "Succeeded"):
            raise TimeoutError
        return is_up(pod)

    try:
        wait_for(is_running, "running pod", _PATIENCE, _POLL)
    except TimeoutError:
        reason = why(api.get("Pod", name))
        raise OarlockError(f"the pod that mounts its claim does not start: {reason}") from None


def delete(api: Api, kind: str, name: str) -> None:
    """Delete an object, and retry for a while if the API server does not answer or refuses while it starts.

    After that its own deadline ends the pod.
    """

    def is_deleted() -> bool:
        try:
            api.delete(kind, name, grace=0)
        except ApiError:
            return False
        return True

    with suppress(TimeoutError):
        wait_for(is_deleted, f"answer to the deletion of {name}", _FAREWELL, _POLL)


def is_up(pod: Object) -> bool:
    """Whether its container runs and is not being deleted."""
    return "deletionTimestamp" not in pod["metadata"] and any(
        one["name"] == CONTAINER and "running" in one.get("state", {})
        for one in pod["status"].get("containerStatuses") or []
    )


def why(pod: Object) -> str:
    """Why the pod does not run, in Kubernetes' words."""
    status: dict[str, Any] = pod["status"]
    for one in status.get("containerStatuses") or []:
        for state in one.get("state", {}).values():
            if state.get("reason") not in (None, "ContainerCreating"):
                return f"{state['reason']}: {state.get('message', '')}".strip(": ")
    for condition in status.get("conditions") or []:
        if condition["status"] == "False" and condition.get("message"):
            return str(condition["message"]).partition(". ")[0]
    return str(status.get("reason") or status.get("phase"))
