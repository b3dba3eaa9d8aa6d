"""The record of a run on a cluster, kept up to date with what the cluster says.

The watcher and its readers (`pod_watch`) bring the pods and their logs: always the leader's, and those of the
first others. The mirror writes them into the record, diagnoses problems, and notices the end of the run.

The run does not need a mirror: it trains and ends without one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, RESULT, Object
from oarlock.engines.kubernetes.follow import pod_log, pod_status
from oarlock.engines.kubernetes.follow.ledger import Ledger
from oarlock.engines.kubernetes.follow.log_intake import MOST, LogIntake
from oarlock.engines.kubernetes.follow.pod_log import Position
from oarlock.engines.kubernetes.follow.verdict import verdict_of
from oarlock.engines.kubernetes.lifecycle import identity, repair, submit
from oarlock.records.run_folder import RunFolder

_DIAGNOSIS = 1.0  # seconds between two diagnoses
_FAREWELL = 8.0  # seconds after the verdict for the pods' last lines
_PATIENCE = 5.0  # seconds for the first log: on a busy machine one second lost the last lines of a run
_CHECK = 3.0  # seconds between two readings of the Jobs
_MANY = 500  # pods; in a larger run only those that wait or failed are diagnosed
_FEW = 100


class Mirror:
    """Keeps the record of one run; the client that has one holds the record's lock."""

    def __init__(self, run: RunFolder, api: Api) -> None:
        self.run = run
        self.api = api
        self.ledger = Ledger(run)
        self.identity = identity.of(run)
        self.intake = LogIntake(api, self.identity, self.ledger, lambda line: self.ledger.take(*line))
        self.watcher = self.intake.watcher
        self.verdict_at: float | None = None
        self._diagnosed = self._checked = 0.0
        self._is_repaired = False
        self._patience = _PATIENCE  # until a node has kept us waiting that long: the next may be as dead
        self._seen: tuple[int | None, list[Any]] | None = None  # target size, parallelism of each Job

    def catch_up(self, *, with_logs: bool) -> None:
        """Record what there is now, with as many calls for 5,000 pods as for two. Raises ApiError."""
        jobs = self._jobs()
        labels = self.identity.members
        pods = self._read_logs(labels if with_logs else f"{labels},{LEAD}=true")
        self._note_images(pods.values())
        self._conclude(jobs, pods.values())
        repair.match(self.api, jobs, self._target())
        if not self.ledger.state.is_over:
            self._note_problem(self._diagnose_jobs(jobs))
        elif not with_logs:
            self._read_logs(labels)  # before the cluster deletes them
        self._finish()

    def _read_logs(self, labels: str) -> dict[str, Object]:
        pods = {pod["metadata"]["uid"]: pod for pod in self.api.some("Pod", labels)}
        for uid in pod_status.by_rank(pods, MOST):
            if pod_status.has_started(pods[uid]):
                self._read_now(pods[uid])
        return pods

    def _diagnose_jobs(self, jobs: list[Object]) -> list[diagnose.Problem]:
        """Read pods only if the Jobs, which count them, say that not all are well."""
        wanted = sum(job["spec"].get("parallelism", 0) for job in jobs)
        statuses = [job.get("status", {}) for job in jobs]
        if sum(one.get("ready", 0) for one in statuses) == wanted and not any(
            status.get("terminating") for status in statuses
        ):
            return []
        labels = self.identity.members
        if wanted <= _MANY:
            pods = self.api.some("Pod", labels)
        else:
            pods = [*self.api.some("Pod", labels, "status.phase=Failed", _FEW)]
            pods += self.api.some("Pod", labels, "status.phase=Pending", _FEW)
        return diagnose.find_problems(self.api, self.identity, pods, jobs)

    def follow(self, stop: threading.Event) -> None:
        """Record until the run is over or `stop` is set. Raises OarlockError when it cannot continue."""
        self.intake.begin()
        try:
            while not stop.is_set():
                self.intake.read(pod_status.by_rank(self.watcher.pods, MOST), self._has_verdict)
                self._drain()
                now = time.monotonic()
                if now - self._checked >= _CHECK or self.verdict_at is not None:
                    self._checked = now
                    self._check()
                if now - self._diagnosed >= _DIAGNOSIS:
                    self._diagnosed = now
                    self._note_images(self.watcher.pods.values())
                    self._diagnose()
                self.ledger.commit()
                if self._is_over():
                    break
        finally:
            self.watcher.is_over = True
        self._finish()

    # What the threads bring

    def _has_verdict(self) -> bool:
        return self.verdict_at is not None

    def _drain(self) -> None:
        self.intake.drain()
        if self.ledger.state.is_over and self.verdict_at is None:
            self.verdict_at = time.monotonic()

    def _read_now(self, pod: Object) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        position = self.ledger.positions.setdefault(uid, Position())
        try:
            for stamp, text in pod_log.read(self.api, pod, position, follow=False, patience=self._patience):
                self.ledger.take(uid, name, stamp, text)
        except ApiError as error:
            if error.is_transient:
                self._patience = pod_log.PATIENCE
            elif error.status not in (400, 404):
                raise
            # Its node does not answer, or the log is gone: the diagnosis says why.

    # What only the cluster knows

    def _jobs(self) -> list[Object]:
        jobs = submit.jobs_of(self.api, self.identity)
        if not self._is_repaired:
            repair.repair(self.api, jobs)
            self._is_repaired = True
        return jobs

    def _target(self) -> int | None:
        """The number of workers that the last `scale` asked for."""
        return None if self.ledger.state.is_over else self.ledger.state.workers

    def _check(self) -> None:
        if self.ledger.state.is_over:
            return
        try:
            jobs = self._jobs()
            self._conclude(jobs, self.watcher.pods.values(), self.watcher.gone.values())
            self._match(jobs)
        except ApiError:
            pass  # the watcher reports what is wrong

    def _match(self, jobs: list[Object]) -> None:
        """Repair a `scale` that a dead client left half done.

        A client that scales the run asks the leader first and then changes the Job, and the leader's event
        arrives late. Only a difference that lasts from one check to the next is a dead client's.
        """
        seen = (self._target(), [job["spec"].get("parallelism") for job in jobs])
        if seen == self._seen:
            repair.match(self.api, jobs, self._target())
        self._seen = seen

    def _conclude(self, jobs: list[Object], pods: Iterable[Object], deleted: Iterable[Object] = ()) -> None:
        """Record the end of a run that its leader did not report: stopped, deleted, or without its log."""
        if self.ledger.state.is_over:
            return
        is_log_open = any(not reader.is_over for reader in self.intake.readers.values())
        if found := verdict_of(jobs, [*pods], [*deleted], is_log_open):
            self.ledger.end(found.state, found.code, **found.details)

    def _diagnose(self) -> None:
        """Note what is wrong, once, and note when it is resolved."""
        if self.verdict_at is not None:
            return
        if self.watcher.problem is not None:
            problem = self.intake.absence()
            if problem is not None:
                self._note_problem([problem])
            return
        self._diagnose_pods([*self.watcher.pods.values()])

    def _diagnose_pods(self, pods: list[Object]) -> None:
        """Call the API server only if a pod is missing or not well."""
        if all(map(pod_status.is_well, pods)) and len(pods) >= self.ledger.machines:
            self._note_problem([])
            return
        try:
            self._note_problem(diagnose.find_problems(self.api, self.identity, pods))
        except ApiError:
            pass

    def _note_problem(self, problems: list[diagnose.Problem]) -> None:
        first = problems[0] if problems else None
        text, state = None if first is None else f"{first.what}; {first.fix}", self.ledger.state
        if text != state.problem and not (first is None and state.is_stuck):
            self.ledger.emit("problem", **({} if first is None else {"text": first.what, "fix": first.fix}))

    def _note_images(self, pods: Iterable[Object]) -> None:
        """Record digests: a tag may mean another image on another node, or on another day."""
        for pod in pods:
            image, digest = pod_status.image_of(pod)
            known = self.ledger.state.images.get(image, [])
            if digest and digest not in known:
                if known:
                    name = pod["metadata"]["name"]
                    text = f"{name} runs another {image} than before: {digest}, and not {known[-1]}"
                    self.ledger.emit("note", text=text)
                self.ledger.emit("image", image=image, digest=digest)

    # The end

    def _is_over(self) -> bool:
        if self.verdict_at is None:
            return False
        if time.monotonic() - self.verdict_at > _FAREWELL:
            return True
        pods = self.watcher.pods
        if any(
            pod_status.has_side_car(pod) and not pod_status.has_finished_task(pod) for pod in pods.values()
        ):
            return False  # wait until only the side cars run
        readers = self.intake.readers
        is_read = all(reader.is_over for reader in readers.values()) and self.intake.is_empty
        return is_read and {*pod_status.by_rank(pods, MOST)} <= readers.keys()

    def _finish(self) -> None:
        self.intake.finish()
        if self.ledger.state.is_over:
            self.ledger.seal()
            self._end_side_cars()
            self._mark()
        else:
            self.ledger.commit()

    def _end_side_cars(self) -> None:
        """Suspend the Jobs of pods in which only side cars run, which may never end by themselves."""
        pods = self.watcher.pods.values()
        if not any(pod_status.has_side_car(pod) and pod_status.has_finished_task(pod) for pod in pods):
            return
        try:
            for job in submit.jobs_of(self.api, self.identity):
                self.api.change("Job", job, {"spec": {"suspend": True}})
        except ApiError:
            pass  # this user may not

    def _mark(self) -> None:
        """Annotate the leading Job with the result, for kubectl.

        Pods cannot fail their Job, so the Job of a failed run is Complete. To make it Failed (backoffLimit:
        0) would delete the leader's pod with its log and its termination message.
        """
        try:
            change = {"metadata": {"annotations": {RESULT: self.ledger.state.state}}}
            for lead in self.api.all("Job", self.identity.leading):
                self.api.change("Job", lead, change)
        except ApiError:
            pass  # gone, or this user may not change it
