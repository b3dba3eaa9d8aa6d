"""Whether a Deployment's pods answer and, if not, why."""

from __future__ import annotations

from collections.abc import Callable

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import CONTAINER, REVISION, SERVER, Identity, Object
from oarlock.engines.kubernetes.diagnose.admission import refusal
from oarlock.engines.kubernetes.diagnose.evidence import condition
from oarlock.errors import OarlockError

# Reasons from which no pod recovers by waiting.
_HOPELESS = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")


class RolloutProgress:
    """The rollout of a Deployment, which callers check repeatedly."""

    def __init__(self, api: Api, run: Identity, on_wait: Callable[[str], bool]) -> None:
        self.api = api
        self.run = run
        self._on_wait = on_wait

    def is_ready(self) -> bool:
        """Whether all pods of the newest revision answer and no others are left.

        Raises OarlockError if they never will.
        """
        found = self.api.find("Deployment", self.run.name)
        if found is None:
            raise OarlockError(f"{self.run.name} was deleted meanwhile")
        if is_rolled_out(found):
            return True
        pods = self.pods(found)
        if any(is_hopeless(pod) for pod in pods):
            raise OarlockError(self.reason("its pod does not start"))
        if not self._on_wait(self._problem(found, pods)):
            raise OarlockError("you did not wait for it")
        return False

    def pods(self, deployment: Object) -> list[Object]:
        """The pods of the newest revision."""
        notes = deployment["spec"]["template"]["metadata"].get("annotations") or {}
        found = self.api.all("Pod", self.run.members)
        return [
            pod
            for pod in found
            if (pod["metadata"].get("annotations") or {}).get(REVISION) == notes.get(REVISION)
        ]

    def reason(self, otherwise: str) -> str:
        """Why it does not answer: the last words of a container, a diagnosis, or Kubernetes' own reason."""
        found = self.api.find("Deployment", self.run.name)
        if found is None:
            return f"{self.run.name} was deleted meanwhile"
        pods = self.pods(found)
        words = next((text for text in map(last_words, pods) if text), "")
        return words or self._problem(found, pods) or otherwise

    def _problem(self, deployment: Object, pods: list[Object]) -> str:
        return problem_of(self.api, self.run, deployment, pods)


def problem_of(api: Api, run: Identity, deployment: Object, pods: list[Object]) -> str:
    """What is wrong with the pods, and what to do about it; empty while all is well or only just starting."""
    refused = condition(deployment, "ReplicaFailure")
    if refused.get("status") == "True":
        return "; ".join(refusal(str(refused.get("message", "")), SERVER))
    problems = diagnose.find_problems(api, run, pods, [])
    return f"{problems[0].what}; {problems[0].fix}" if problems else ""


def is_rolled_out(deployment: Object) -> bool:
    """Whether all pods are of the newest revision, and available."""
    status, wanted = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    updated = status.get("updatedReplicas", 0)
    return bool(
        status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
        and updated >= wanted
        and status.get("replicas", 0) <= updated
        and status.get("availableReplicas", 0) >= updated
    )


def is_hopeless(pod: Object) -> bool:
    """Whether its image is unavailable, or its process has ended twice: it would end again."""
    for one in pod["status"].get("containerStatuses") or []:
        state = one.get("state", {})
        if state.get("waiting", {}).get("reason") in _HOPELESS:
            return True
        if one.get("restartCount", 0) and "running" not in state:
            return True
    return False


def last_words(pod: Object) -> str:
    """The last line of its container that ended with an error."""
    for one in pod["status"].get("containerStatuses") or []:
        ended = one.get("state", {}).get("terminated") or one.get("lastState", {}).get("terminated") or {}
        if one["name"] == CONTAINER and ended.get("exitCode") and ended.get("message", "").strip():
            return str(ended["message"]).strip().rpartition("\n")[2].removeprefix("oarlock: ")
    return ""
