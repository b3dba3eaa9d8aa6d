"""The record of a served model, kept up to date with what the cluster says.

Its tasks are the Deployment's pods, named by what their names add to the Deployment's. A generation is one
`oarlock serve`: the first one, and every update. The server does not need a mirror.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import ID, REVISION, STOPPED, Object
from oarlock.engines.kubernetes.deployments import pod_traffic, readiness, rollout
from oarlock.engines.kubernetes.follow import pod_log, pod_status
from oarlock.engines.kubernetes.follow.ledger import Ledger
from oarlock.engines.kubernetes.follow.log_intake import MOST, LogIntake
from oarlock.engines.kubernetes.follow.pod_log import Position
from oarlock.engines.kubernetes.follow.pod_watch import Line
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.records.run_folder import RunFolder
from oarlock.serving.fleet import announcement

_CHECK = 1.0  # seconds between two checks of the Deployment
_ASK = 5.0  # seconds between asking the pods how many requests they have answered
_PATIENCE = 5.0  # seconds for the first log


class ServerMirror:
    """Keeps the record of one served model; the client that has one holds the record's lock."""

    def __init__(self, run: RunFolder, api: Api) -> None:
        self.run = run
        self.api = api
        self.ledger = Ledger(run)
        self.identity = identity.of(run)
        self.intake = LogIntake(api, self.identity, self.ledger, self._take)
        self.watcher = self.intake.watcher
        self._names: dict[str, tuple[int, str]] = {}  # by uid: generation and task
        self._checked = self._asked = 0.0

    def catch_up(self, *, with_logs: bool) -> None:
        """Record what there is now. Raises ApiError."""
        pods = self.api.all("Pod", self.identity.members)
        self._note(self._deployment(), pods)
        self._note_traffic(pods)
        for pod in pods[:MOST] if with_logs else ():
            if pod_status.has_started(pod) and self._is_of_record(pod["metadata"]["uid"]):
                self._read_now(pod)
        self._finish()

    def follow(self, stop: threading.Event) -> None:
        """Record until the server is stopped or `stop` is set. Raises OarlockError if it cannot continue."""
        self.intake.begin()
        try:
            while not stop.is_set() and not self.ledger.state.is_over:
                self._read_logs()
                self.intake.drain()
                now = time.monotonic()
                if now - self._checked >= _CHECK:
                    self._checked = now
                    self._check()
                self.ledger.commit()
        finally:
            self.watcher.is_over = True
        self._finish()

    def _check(self) -> None:
        if self.watcher.problem is not None:
            problem = self.intake.absence()
            if problem is not None:
                self._note_problem(f"{problem.what}; {problem.fix}")
            return
        try:
            self._note(self._deployment(), [*self.watcher.pods.values()])
            if time.monotonic() - self._asked >= _ASK:
                self._asked = time.monotonic()
                self._note_traffic([*self.watcher.pods.values()])
        except ApiError:
            pass  # the watcher gets the same error, and explains it

    # What the cluster shows

    def _deployment(self) -> Object | None:
        """The Deployment that the record is about: another one may have its name by now."""
        found = self.api.find("Deployment", self.run.name)
        labels = {} if found is None else found["metadata"].get("labels") or {}
        return found if labels.get(ID) == self.identity.id else None

    def _note(self, deployment: Object | None, pods: list[Object]) -> None:
        if deployment is None or "deletionTimestamp" in deployment["metadata"]:
            self.ledger.end("lost", 1, reason="its objects are gone from the cluster: they were deleted")
            return
        for pod in pods:
            self._names.setdefault(pod["metadata"]["uid"], self._name(pod))
        self._note_tasks(deployment, [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]])
        self._note_images(pods)
        notes = deployment["metadata"].get("annotations") or {}
        if STOPPED in notes and not any(map(pod_status.is_alive, pods)):
            self.ledger.end("stopped", 130, reason=notes[STOPPED])
        elif not readiness.is_rolled_out(deployment):
            self._note_problem(readiness.problem_of(self.api, self.identity, deployment, pods))
        else:
            self._note_problem("")

    def _note_traffic(self, pods: list[Object]) -> None:
        if not self.ledger.state.is_over:
            for task, report in pod_traffic.reports(self.api, pods, self.run.name).items():
                self._note_report(task, report)

    def _name(self, pod: Object) -> tuple[int, str]:
        notes = pod["metadata"].get("annotations") or {}
        return int(notes.get(REVISION, "1")), pod["metadata"]["name"].removeprefix(f"{self.run.name}-")

    def _note_tasks(self, deployment: Object, pods: list[Object]) -> None:
        """Record which pods there are, and which of them answer."""
        state, revision = self.ledger.state, rollout.revision_of(deployment)
        named = {self._names[pod["metadata"]["uid"]][1]: pod for pod in pods}
        if revision != state.generation:
            self.ledger.emit("generation", generation=revision, tasks=sorted(named))
        elif sorted(named) != sorted(state.tasks):
            self.ledger.emit("tasks", tasks=sorted(named))
        for name, pod in named.items():
            is_up = pod_status.is_well(pod)
            if is_up and state.tasks[name].state != "running":
                self.ledger.emit("task", task=name, generation=revision, state="started")
            elif not is_up and state.tasks[name].state == "running":
                self.ledger.emit("task", task=name, generation=revision, state="ended", code=1)

    def _note_images(self, pods: Iterable[Object]) -> None:
        """Record digests: a tag may mean another image on another node, or on another day."""
        for pod in pods:
            image, digest = pod_status.image_of(pod)
            if digest and digest not in self.ledger.state.images.get(image, []):
                self.ledger.emit("image", image=image, digest=digest)

    def _note_problem(self, text: str) -> None:
        if text != (self.ledger.state.problem or ""):
            what, _, fix = text.partition("; ")
            self.ledger.emit("problem", **({"text": what, "fix": fix} if text else {}))

    def _note_report(self, task: str, counted: dict[str, float]) -> None:
        """Record what a pod has counted, if that has changed or is its first count."""
        known = self.ledger.state.tasks.get(task)
        if known is None or known.step == counted.get("step"):
            return
        report: dict[str, Any] = {**counted, "replicas": 1}
        if known.step is not None and known.reported is not None:
            passed = max(time.time() - known.reported, 1e-3)
            report["requests_per_s"] = round(max(0.0, counted["step"] - known.step) / passed, 1)
        announced = announcement.read(announcement.path_for(self.run.serving_file))
        if announced is not None:
            report |= {"version": str(announced.version), "form": announced.form}
        self.ledger.emit("report", task=task, **report)

    # What the threads bring

    def _read_logs(self) -> None:
        pods = self.watcher.pods
        for uid, pod in pods.items():
            self._names.setdefault(uid, self._name(pod))
        self.intake.read(filter(self._is_of_record, pods), lambda: False)

    def _is_of_record(self, uid: str) -> bool:
        """Whether a pod is not one of a reverted update, whose pods may take a while to go."""
        return self._names[uid][0] <= self.ledger.state.generation

    def _take(self, line: Line) -> None:
        uid, _, stamp, text = line
        self.ledger.take_output(*self._names[uid], stamp, text)

    def _read_now(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        position = self.ledger.positions.setdefault(uid, Position())
        try:
            for stamp, text in pod_log.read(self.api, pod, position, follow=False, patience=_PATIENCE):
                self.ledger.take_output(*self._names[uid], stamp, text)
        except ApiError as error:
            if not error.is_transient and error.status not in (400, 404):
                raise

    def _finish(self) -> None:
        self.intake.finish()
        if self.ledger.state.is_over:
            self.ledger.seal()
        else:
            self.ledger.commit()
