"""The pods that predict, as their client sees them: which one has an index now, and why none does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import INDEX, Identity, Object
from oarlock.engines.kubernetes.claims import claim_pod
from oarlock.engines.kubernetes.deployments import readiness
from oarlock.engines.kubernetes.follow.pod_watch import Watcher
from oarlock.engines.kubernetes.lifecycle.connect import explained
from oarlock.engines.shared.predictor import answers
from oarlock.errors import OarlockError

_LOOK = 2.0  # seconds between two diagnoses
_AWAY = 60.0  # seconds for which the API server may be away


class PredictionPods:
    """Watches the pods of one Job, and has lost pods replaced at once."""

    def __init__(self, api: Api, run: Identity, job: Object, notify: Callable[[str], None]) -> None:
        self._api = api
        self._run = run
        self._job = job
        self._notify = notify
        self._watcher = Watcher(api, run)
        self._watcher.start()
        self._lock = threading.Lock()
        self._looks = 0.0
        self._said = ""

    def end(self) -> None:
        """Replace no more pods."""
        self._watcher.is_over = True

    def name_of(self, index: int) -> str | None:
        """The pod of an index that runs now."""
        for pod in self._of(index):
            if claim_pod.is_up(pod):
                return str(pod["metadata"]["name"])
        return None

    def is_ready(self, index: int, url: str) -> bool:
        """Whether the pod of an index answers. Raises OarlockError if it never will; says why it waits."""
        self._require_cluster()
        if self.name_of(index) is not None and answers(url):
            return True
        pods = self._of(index)
        with explained():
            if any(map(readiness.is_hopeless, pods)):
                raise OarlockError(self._why(pods))
            self._tell(pods)
        return False

    def _of(self, index: int) -> list[Object]:
        found = self._watcher.pods.values()
        return [pod for pod in found if pod["metadata"]["labels"].get(INDEX) == str(index)]

    def _require_cluster(self) -> None:
        problem = self._watcher.problem
        if problem is not None and time.monotonic() - self._watcher.since > _AWAY:
            with explained():
                raise problem

    def _why(self, pods: list[Object]) -> str:
        words = next((text for text in map(readiness.last_words, pods) if text), "")
        return words or self._problem(pods) or f"a pod of {self._run.name} does not start"

    def _tell(self, pods: list[Object]) -> None:
        """Report once what keeps a pod from starting."""
        with self._lock:
            if time.monotonic() < self._looks:
                return
            self._looks = time.monotonic() + _LOOK
            problem = self._problem(pods)
            if problem and problem != self._said:
                self._said = problem
                self._notify(problem)

    def _problem(self, pods: list[Object]) -> str:
        found = diagnose.find_problems(self._api, self._run, pods, [] if pods else [self._job])
        return f"{found[0].what}; {found[0].fix}" if found else ""
