"""Create, find and delete a TensorBoard that runs in the namespace until a user deletes it."""

from __future__ import annotations

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api, uid_of
from oarlock.engines.kubernetes.api.names import BOARD, Identity, Object
from oarlock.engines.kubernetes.claims import board_objects, claim_pod
from oarlock.engines.kubernetes.claims.claim_pod import Purpose
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.shared.standing_board import StandingBoard
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.system.polling import wait_for

_MEMORY = ("256Mi", "2Gi")
_PATIENCE = 300.0  # seconds until it answers: its image may have to be pulled, and packages installed
_GOING = 60.0
_POLL = 0.2
_HOPELESS = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")


def deploy(api: Api, run: RunFolder, image: str | None, host: str | None) -> StandingBoard:
    """Create a board, unless there is one, and wait until it answers. If it raises, no board is left."""
    who = identity.of(run)
    there = find(api, who)
    if there is not None:
        return there
    folder = run.folder("logs")
    if "://" in folder:
        raise OarlockError(
            f"LOG_DIR of {run.name} is {folder}: only what is on a claim can be shown from a pod"
        )
    purpose = Purpose(board_objects.PURPOSE, board_objects.command(folder), image=image, memory=_MEMORY)
    prepared = claim_pod.prepare(api, run, purpose)
    api.create(prepared.pod, dry_run=True)  # a Deployment would only note in an event what admission refuses
    job, owner = run.state().job, api.user
    manifests = [
        board_objects.deployment(who, job, prepared.pod, run.spec().env, owner),
        board_objects.service(who, job, owner),
        *([board_objects.ingress(who, job, host, owner)] if host else []),
    ]
    api.create(manifests[0])  # if another client has just made it, that one stays
    try:
        for manifest in manifests[1:]:
            api.create(manifest)
        _wait(api, who)
    except BaseException:
        delete(api, who, waits=False)
        raise
    found = find(api, who)
    if found is None:
        raise OarlockError(f"the TensorBoard of {run.name} was deleted meanwhile")
    return StandingBoard(found.name, found.namespace, found.host, is_new=True)


def find(api: Api, run: Identity) -> StandingBoard | None:
    """Return the board of a run; None if there is none, or this user may not look."""
    if not _all(api, "Deployment", run):
        return None
    hosts = [rule.get("host") for one in _all(api, "Ingress", run) for rule in one["spec"].get("rules") or []]
    name = board_objects.name_of(run.name)
    return StandingBoard(name, api.namespace, next(filter(None, hosts), None))


def delete(api: Api, run: Identity, *, waits: bool = True) -> bool:
    """Delete the board of a run, and wait until its pod has left the claim. Returns whether there was one."""
    found = [(kind, one) for kind in board_objects.KINDS for one in _all(api, kind, run)]
    for kind, one in found:
        api.delete(kind, one["metadata"]["name"], only=uid_of(one))
    if found and waits:
        labels = board_objects.selector(run)
        try:
            wait_for(lambda: not api.all("Pod", labels), "end of the pod", _GOING, _POLL)
        except TimeoutError:
            raise OarlockError(
                f"after {_GOING:g} s the pod of {run.name}'s TensorBoard is still there"
            ) from None
    return bool(found)


def users_of(api: Api, job: str) -> set[str]:
    """Return the names of a job's runs that have a board, which may mount the job's claims."""
    found = _listed(api, "Deployment", board_objects.of_job(job))
    return {one["metadata"]["labels"][BOARD] for one in found}


def _all(api: Api, kind: str, run: Identity) -> list[Object]:
    return _listed(api, kind, board_objects.selector(run))


def _listed(api: Api, kind: str, labels: str) -> list[Object]:
    """The objects; none for a user who may not list them, and so has made none: runs need fewer rights."""
    try:
        return api.all(kind, labels)
    except ApiError as error:
        if error.status == 403:
            return []
        raise


def _wait(api: Api, run: Identity) -> None:
    found: list[Object] = []

    def answers() -> bool:
        found[:] = api.all("Pod", board_objects.selector(run))
        if any(_is_hopeless(pod) for pod in found):
            raise TimeoutError
        return any(_is_ready(pod) for pod in found)

    try:
        wait_for(answers, "answer from TensorBoard", _PATIENCE, _POLL)
    except TimeoutError:
        reason = _reason(api, found[0]) if found else "the cluster creates no pod"
        raise OarlockError(f"its TensorBoard does not start: {reason}; nothing was left") from None


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _is_hopeless(pod: Object) -> bool:
    """Whether its image is unavailable, or its command has failed: it would fail again."""
    for one in pod["status"].get("containerStatuses") or []:
        if one.get("state", {}).get("waiting", {}).get("reason") in _HOPELESS or one.get("restartCount", 0):
            return True
    return False


def _reason(api: Api, pod: Object) -> str:
    """The last words of its container, else a diagnosis, else Kubernetes' own reason."""
    for one in pod["status"].get("containerStatuses") or []:
        ended = one.get("lastState", {}).get("terminated") or one.get("state", {}).get("terminated")
        if ended and ended.get("message", "").strip():
            return str(ended["message"]).strip().rpartition("\n")[2]
    problems = diagnose.find_problems(api, Identity(pod["metadata"]["name"]), [pod], [])
    if problems:
        return problems[0].what.removeprefix(f"{problems[0].who}: ")
    return claim_pod.why(pod).strip().rpartition("\n")[2]
