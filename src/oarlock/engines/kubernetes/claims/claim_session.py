"""A temporary pod that mounts a run's claims for as long as a client uses it, also during training.

It is a Job of its own whose deadline the client extends. If the client is killed or disconnected, the
deadline passes: Kubernetes removes the pod, and the Job a few seconds later. A pod alone would stay forever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import HELPER, MANAGED, Identity, Object
from oarlock.engines.kubernetes.claims import claim_pod
from oarlock.engines.kubernetes.claims.claim_pod import Prepared, Purpose
from oarlock.engines.kubernetes.manifests import objects
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.system.polling import wait_for

LEASE = 600.0  # seconds that the pod outlives its client
# Ends at once on SIGTERM: a shell handles no signal while it waits for a child, unless it `wait`s.
IDLE = ("/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done")

_AFTERWARDS = 5  # seconds for which a failed pod stays, to read the reason
_PATIENCE = 120.0
_POLL = 0.1
_WHAT = "the pod beside its claim"
_HOPELESS = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")


@contextmanager
def beside(api: Api, run: RunFolder, purpose: Purpose, lease: float = LEASE) -> Iterator[str]:
    """Yield the name of a running pod that mounts the run's claims; it is always removed."""
    with running(api, claim_pod.prepare(api, run, purpose), lease) as pod:
        yield pod


@contextmanager
def running(
    api: Api,
    prepared: Prepared,
    lease: float = LEASE,
    *,
    needs: Sequence[Object] = (),
    patience: float = _PATIENCE,
) -> Iterator[str]:
    """Yield the name of the running pod; it is always removed, and with it the objects that it needs."""
    job = prepared.owned(_job(prepared.pod))
    with leased(api, job, prepared.pod, needs, lease):
        yield _wait(api, job["metadata"]["name"], patience)


@contextmanager
def leased(
    api: Api, job: Object, pod: Object, needs: Sequence[Object] = (), lease: float = LEASE
) -> Iterator[Object]:
    """Yield a Job that was created; it is always removed, and with it the objects that its pods need.

    `pod`: one of its pods. A Job would only note in an event what admission refuses.
    """
    api.create(pod, dry_run=True)
    name = job["metadata"]["name"]
    limits = {"activeDeadlineSeconds": round(lease), "ttlSecondsAfterFinished": _AFTERWARDS}
    over = threading.Event()
    renewing = threading.Thread(target=_renew, args=(api, name, lease, over), daemon=True)
    try:
        made = api.create({**job, "spec": {**job["spec"], **limits}})
        renewing.start()
        for manifest in needs:
            api.create(objects.owned(manifest, made))
        yield made
    finally:
        over.set()
        claim_pod.delete(api, "Job", name)


def require(api: Api, pod: str) -> None:
    """Raise OarlockError if the pod no longer runs."""
    found = api.find("Pod", pod)
    if found is None:
        raise OarlockError(f"{_WHAT} was deleted")
    if not claim_pod.is_up(found):
        raise OarlockError(f"{_WHAT} has ended: {_reason(api, found)}")


def _job(pod: Object) -> Object:
    """The Job, without the run's label: `stop` would suspend it. Its pod has the label."""
    labels = {MANAGED: "oarlock", HELPER: pod["metadata"]["labels"][HELPER]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": pod["metadata"]["name"], "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "template": {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]},
        },
    }


def _renew(api: Api, job: str, lease: float, over: threading.Event) -> None:
    """Extend the deadline, which counts from the Job's start; the Job starts no earlier than this call."""
    began = time.monotonic()
    while not over.wait(lease / 3):
        deadline = round(time.monotonic() - began + lease)
        try:
            api.patch("Job", job, {"spec": {"activeDeadlineSeconds": deadline}})
        except ApiError as error:
            if error.status == 404:
                return


def _wait(api: Api, job: str, patience: float) -> str:
    found: list[Object] = []

    def running() -> str:
        found[:] = api.all("Pod", f"batch.kubernetes.io/job-name={job}")
        for pod in found:
            if claim_pod.is_up(pod):
                return str(pod["metadata"]["name"])
            if pod["status"].get("phase") in ("Failed", "Succeeded"):
                raise OarlockError(f"{_WHAT} has ended: {_reason(api, pod)}")
        if any(_is_hopeless(pod) for pod in found):
            raise TimeoutError
        return ""

    try:
        return wait_for(running, "running pod", patience, _POLL)
    except TimeoutError:
        reason = _reason(api, found[0]) if found else "the cluster creates none"
        raise OarlockError(f"{_WHAT} does not start: {reason}") from None


def _is_hopeless(pod: Object) -> bool:
    states = [one.get("state", {}) for one in pod["status"].get("containerStatuses") or []]
    return any(state.get("waiting", {}).get("reason") in _HOPELESS for state in states)


def _reason(api: Api, pod: Object) -> str:
    """The diagnosis, if there is one; else the last line of the pod's own reason."""
    found = diagnose.find_problems(api, Identity(pod["metadata"]["name"]), [pod], [])
    if found:
        return found[0].what.removeprefix(f"{found[0].who}: ")
    return claim_pod.why(pod).strip().rpartition("\n")[2]
