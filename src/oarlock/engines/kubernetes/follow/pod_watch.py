"""Threads that read from the cluster: the watcher lists and watches a run's pods, a reader follows one log.

They only collect; the mirror interprets.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Identity, Object
from oarlock.engines.kubernetes.follow import pod_log, pod_status
from oarlock.engines.kubernetes.follow.pod_log import Position
from oarlock.engines.kubernetes.follow.replace_lost import Replacement

_RETRY = 0.5  # seconds between two tries
# Seconds for a node to send the next piece of a log. A thread may wait longer than a command that reads one
# log after another: on a busy machine one second was never enough for the log of a container that restarted.
_PATIENCE = 10.0

Line = tuple[str, str, str, str]  # uid, pod, stamp, text


class Watcher(threading.Thread):
    """Keeps the list of the run's pods up to date."""

    def __init__(self, api: Api, run: Identity) -> None:
        super().__init__(name=f"pods of {run.name}", daemon=True)
        self.api = api
        self.labels = run.members
        self.replacement = Replacement(api)
        self._pods: dict[str, Object] = {}  # by uid
        self._lock = threading.Lock()
        self.gone: dict[str, Object] = {}
        self.problem: ApiError | None = None  # why it cannot read the pods
        self.since = 0.0
        self.has_seen = threading.Event()
        self.is_over = False

    @property
    def pods(self) -> dict[str, Object]:
        """The current pods by uid."""
        with self._lock:
            return dict(self._pods)

    def run(self) -> None:
        """List and watch, again after every error, until `is_over`."""
        while not self.is_over:
            try:
                found, version = self.api.all_with_version("Pod", self.labels)
                self._set({pod["metadata"]["uid"]: pod for pod in found})
                self._watch(version)
            except ApiError as error:
                self._fail(error)
            time.sleep(_RETRY)

    def _watch(self, version: str) -> None:
        for change in self.api.watch("Pod", self.labels, version):
            if self.is_over or change["type"] == "ERROR":
                return
            pod = change["object"]
            uid = pod["metadata"].get("uid")
            if change["type"] == "BOOKMARK":
                continue
            with self._lock:
                if change["type"] == "DELETED":
                    self._pods.pop(uid, None)
                    self.gone[uid] = pod
                else:
                    self._pods[uid] = pod
            self.replacement.release(pod)

    def _set(self, found: dict[str, Object]) -> None:
        with self._lock:
            self.gone.update({uid: pod for uid, pod in self._pods.items() if uid not in found})
            self._pods, self.problem = found, None
        self.has_seen.set()
        for pod in found.values():
            self.replacement.release(pod)

    def _fail(self, error: ApiError) -> None:
        if self.problem is None:
            self.since = time.monotonic()
        self.problem = error
        self.has_seen.set()


class Reader(threading.Thread):
    """Follows one pod's log to its end."""

    def __init__(
        self,
        watcher: Watcher,
        uid: str,
        position: Position,
        out: queue.Queue[Line],
        is_run_over: Callable[[], bool],
    ) -> None:
        super().__init__(name=f"log of {uid}", daemon=True)
        self.is_run_over = is_run_over
        self.watcher = watcher
        self.uid = uid
        self.position = position
        self.out = out
        self.is_over = False

    def run(self) -> None:
        """Put each line into the queue once; end when the pod has ended or is gone."""
        has_read_on = False
        while not self.is_over and not self.watcher.is_over:
            pod = self.watcher.pods.get(self.uid)
            if pod is None:
                break  # deleted; its log with it
            # After the run's end, a stream ends with the container, not because its kubelet restarts.
            had_ended = pod_status.has_ended(pod) or has_read_on
            try:
                for stamp, text in pod_log.read(
                    self.watcher.api, pod, self.position, follow=not had_ended, patience=_PATIENCE
                ):
                    self.out.put((self.uid, pod["metadata"]["name"], stamp, text))
                if had_ended:
                    break  # read to the end after the pod had ended
                has_read_on = self.is_run_over()
            except ApiError as error:
                if had_ended and error.status == 404 and self.uid not in self.watcher.pods:
                    break
            if not has_read_on:
                time.sleep(_RETRY)
        self.is_over = True
