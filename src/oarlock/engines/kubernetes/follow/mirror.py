"""Watching a run on its cluster, and keeping its record here.

The watcher and its readers (`watching`) bring the pods and their logs, the leader's always, of the others
the first ones; the mirror writes that into the record, sees what is wrong, and when it is over.

The run does not need it: it goes on and ends without anybody watching.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import CONTAINER, INDEX, LEAD, RESULT, STOPPED, Object
from oarlock.engines.kubernetes.follow import pod_log
from oarlock.engines.kubernetes.follow.ledger import Ledger
from oarlock.engines.kubernetes.follow.pod_log import Position
from oarlock.engines.kubernetes.follow.pod_watch import Line, Reader, Watcher
from oarlock.engines.kubernetes.lifecycle import identity, repair, submit
from oarlock.errors import OarlockError
from oarlock.records.runs import RunFolder

_MOST = 64  # logs followed at a time
_TURN = 0.1  # seconds between two commits
_LOOK = 1.0  # seconds between two looks at what is wrong
_FAREWELL = 8.0  # seconds after the verdict for the pods' last lines
_CHECK = 3.0  # seconds between two looks at the Jobs
_AWAY = 3.0  # seconds without an answer that are worth a word
_REFUSED = 30.0  # seconds for which a server that comes up may refuse what it later allows
_BATCH = 5000
_MANY = 500  # pods: of more only those that wait or failed are looked at
_FEW = 100


class Mirror:
    def __init__(self, run: RunFolder, api: Api) -> None:
        self.run = run
        self.api = api
        self.ledger = Ledger(run)
        self.identity = identity.of(run)
        self.watcher = Watcher(api, self.identity)
        self.readers: dict[str, Reader] = {}
        self.lines: queue.Queue[Line] = queue.Queue(maxsize=4 * _BATCH)
        self.verdict_at: float | None = None
        self._looked = self._checked = 0.0
        self._is_repaired = False
        self._seen: tuple[int | None, list[Any]] | None = None  # workers wanted, and pods of each Job

    def catch_up(self, *, with_logs: bool) -> None:
        """What there is now, and no more: as many calls for 5,000 pods as for two. Raises ApiError."""
        jobs = self._jobs()
        labels = self.identity.members
        pods = self._read_logs(labels if with_logs else f"{labels},{LEAD}=true")
        self._tell_images(pods)
        self._conclude(jobs, pods)
        repair.match(self.api, jobs, self._wanted())
        if not self.ledger.state.is_over:
            self._tell(self._look_once(jobs))
        elif not with_logs:
            self._read_logs(labels)  # while they are there
        self._finish()

    def _read_logs(self, labels: str) -> dict[str, Object]:
        pods = {pod["metadata"]["uid"]: pod for pod in self.api.some("Pod", labels)}
        for uid in _chosen(pods):
            if pod_log.has_started(pods[uid]):
                self._read_now(pods[uid])
        return pods

    def _look_once(self, jobs: list[Object]) -> list[diagnose.Problem]:
        """Pods that are well need no look, and their Jobs count them."""
        wanted = sum(job["spec"].get("parallelism", 0) for job in jobs)
        statuses = [job.get("status", {}) for job in jobs]
        if sum(one.get("ready", 0) for one in statuses) == wanted and not any(map(_is_leaving, statuses)):
            return []
        labels = self.identity.members
        if wanted <= _MANY:
            pods = self.api.some("Pod", labels)
        else:
            pods = [*self.api.some("Pod", labels, "status.phase=Failed", _FEW)]
            pods += self.api.some("Pod", labels, "status.phase=Pending", _FEW)
        return diagnose.look(self.api, self.identity, pods, jobs)

    def follow(self, stop: threading.Event) -> None:
        """Until the run is over, or nobody wants to see it. Raises OarlockError when it cannot go on."""
        self.watcher.start()
        self.watcher.has_seen.wait(30)
        try:
            while not stop.is_set():
                self._start_readers()
                self._drain()
                now = time.monotonic()
                if now - self._checked >= _CHECK or self.verdict_at is not None:
                    self._checked = now
                    self._check()
                if now - self._looked >= _LOOK:
                    self._looked = now
                    self._tell_images(self.watcher.pods)
                    self._look()
                self.ledger.commit()
                if self._is_over():
                    break
        finally:
            self.watcher.is_over = True
        self._finish()

    # What the threads bring

    def _start_readers(self) -> None:
        pods = self.watcher.pods
        alive = sum(not reader.is_over for reader in self.readers.values())
        for uid in _chosen(pods):
            if uid in self.readers or alive >= _MOST or not pod_log.has_started(pods[uid]):
                continue
            position = self.ledger.positions.setdefault(uid, Position())
            # The reader runs ahead of what is committed, so it counts for itself.
            reader = Reader(self.watcher, uid, Position(**vars(position)), self.lines, self._has_verdict)
            self.readers[uid] = reader
            reader.start()
            alive += 1

    def _has_verdict(self) -> bool:
        return self.verdict_at is not None

    def _drain(self) -> None:
        try:
            self._take(self.lines.get(timeout=_TURN))
            for _ in range(_BATCH):
                self._take(self.lines.get_nowait())
        except queue.Empty:
            pass
        if self.ledger.state.is_over and self.verdict_at is None:
            self.verdict_at = time.monotonic()

    def _take(self, line: Line) -> None:
        uid, pod, stamp, text = line
        position = self.ledger.positions[uid]
        position.advance(stamp)
        position.restarts = self.readers[uid].position.restarts
        self.ledger.take(uid, pod, stamp, text)

    def _read_now(self, pod: Object) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        position = self.ledger.positions.setdefault(uid, Position())
        try:
            for stamp, text in pod_log.read(self.api, pod, position, follow=False):
                self.ledger.take(uid, name, stamp, text)
        except ApiError as error:
            if error.status not in (400, 404) and not error.is_transient:
                raise
            # Its node does not answer, or the log is gone: what is known is shown, and why is told.

    # What only the cluster knows

    def _jobs(self) -> list[Object]:
        jobs = submit.jobs_of(self.api, self.identity)
        if not self._is_repaired:
            repair.repair(self.api, jobs)
            self._is_repaired = True
        return jobs

    def _wanted(self) -> int | None:
        """Workers, by the last `scale`."""
        return None if self.ledger.state.is_over else self.ledger.state.workers

    def _check(self) -> None:
        if self.ledger.state.is_over:
            return
        try:
            jobs = self._jobs()
            self._conclude(jobs, self.watcher.pods, self.watcher.gone)
            self._match(jobs)
        except ApiError:
            pass  # the watcher says what is wrong

    def _match(self, jobs: list[Object]) -> None:
        """Who scales the run asks the leader, then changes the Job, and may be between the two; and what
        the leader says comes late. Only what stays so from one look to the next was left so by a dead one."""
        seen = (self._wanted(), [job["spec"].get("parallelism") for job in jobs])
        if seen == self._seen:
            repair.match(self.api, jobs, self._wanted())
        self._seen = seen

    def _conclude(
        self, jobs: list[Object], pods: dict[str, Object], gone: Mapping[str, Object] = MappingProxyType({})
    ) -> None:
        """The end of a run whose leader did not tell us: it was stopped, deleted, or its log is gone."""
        if self.ledger.state.is_over:
            return
        lead = next((job for job in jobs if LEAD in job["metadata"]["labels"]), None)
        notes = (lead or {}).get("metadata", {}).get("annotations", {})
        if lead is None or "deletionTimestamp" in lead["metadata"]:
            self._lose("its objects are gone from the cluster: deleted, or expired (kubernetes.ttl)")
        elif lead["spec"].get("suspend") and STOPPED in notes:
            if not any(_is_alive(pod) for pod in pods.values()):
                self.ledger.end("stopped", 130, reason=notes[STOPPED])
        elif (
            lead["spec"].get("suspend") and RESULT in notes
        ):  # by a client that ended what was left in its pods
            self.ledger.end(notes[RESULT], 0 if notes[RESULT] == "succeeded" else 1)
        elif ended := _condition(lead):
            self._read_verdict(ended, {**gone, **pods})

    def _read_verdict(self, condition: Object, pods: dict[str, Object]) -> None:
        if self.readers and any(not reader.is_over for reader in self.readers.values()):
            return  # its log may still bring it
        told = _last_words(pods.values())
        if told is not None:
            failure = told.get("failure") or {}
            self.ledger.end(
                str(told.get("result", "failed")),
                int(told.get("code") or 0),
                **{**failure, **({"reason": told["reason"]} if told.get("reason") else {})},
            )
        elif condition["type"] == "Failed":
            reason = f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
            self.ledger.end("failed", 1, reason=reason)
        else:
            self._lose("its leader has ended, and with its pod went what it said")

    def _lose(self, reason: str) -> None:
        self.ledger.end("lost", 1, reason=reason)

    def _look(self) -> None:
        """What is wrong, if anything is. Said once, and taken back when it is over."""
        if self.verdict_at is not None:
            return
        error = self.watcher.problem
        if error is not None:
            waited = time.monotonic() - self.watcher.since
            told = diagnose.explain(error)
            if not error.is_transient and (error.status == 401 or waited > _REFUSED):
                raise OarlockError(f"{told.what}; {told.fix}")
            if error.is_transient and waited > _AWAY:
                self._tell([told])
            return
        self._tell_problems(self.watcher.pods)

    def _tell_problems(self, pods: dict[str, Object]) -> None:
        """Asks nothing as long as every pod is there and well."""
        well = [pod for pod in pods.values() if _is_well(pod)]
        if len(well) == len(pods) >= self.ledger.machines:
            self._tell([])
            return
        try:
            self._tell(diagnose.look(self.api, self.identity, list(pods.values())))
        except ApiError:
            pass

    def _tell(self, problems: list[diagnose.Problem]) -> None:
        known = self.ledger.state.problem
        first = problems[0] if problems else None
        told = None if first is None else f"{first.what}; {first.fix}"
        if told != known:
            self.ledger.emit("problem", **({} if first is None else {"text": first.what, "fix": first.fix}))

    def _tell_images(self, pods: Mapping[str, Object]) -> None:
        """What a tag means may change, from node to node and from day to day."""
        for pod in pods.values():
            image, digest = _image(pod)
            known = self.ledger.state.images.get(image, [])
            if digest and digest not in known:
                if known:
                    name = pod["metadata"]["name"]
                    told = f"{name} runs another {image} than before: {digest}, and not {known[-1]}"
                    self.ledger.emit("note", text=told)
                self.ledger.emit("image", image=image, digest=digest)

    # The end

    def _is_over(self) -> bool:
        if self.verdict_at is None:
            return False
        if time.monotonic() - self.verdict_at > _FAREWELL:
            return True
        if any(_has_company(pod) and not _has_left(pod) for pod in self.watcher.pods.values()):
            return False  # a moment, to see that it is only the others that go on
        is_read = all(reader.is_over for reader in self.readers.values())
        return is_read and self.lines.empty() and set(_chosen(self.watcher.pods)) <= self.readers.keys()

    def _finish(self) -> None:
        while not self.lines.empty():
            self._take(self.lines.get_nowait())
        if self.ledger.state.is_over:
            self.ledger.seal()
            self._end_side_cars()
            self._mark()
        else:
            self.ledger.commit()

    def _end_side_cars(self) -> None:
        """Somebody else's containers may be in our pods, and go on for ever: suspended, a Job has no pods."""
        if not any(_has_company(pod) and _has_left(pod) for pod in self.watcher.pods.values()):
            return
        try:
            for job in submit.jobs_of(self.api, self.identity):
                self.api.change("Job", job, {"spec": {"suspend": True}})
        except ApiError:
            pass  # not ours to do

    def _mark(self) -> None:
        """For those who look with kubectl: pods cannot fail a Job, so that of a failed run is Complete. To
        make it Failed (backoffLimit: 0) would delete the leader's pod, with its log and its last words."""
        try:
            change = {"metadata": {"annotations": {RESULT: self.ledger.state.state}}}
            for lead in self.api.all("Job", self.identity.leading):
                self.api.change("Job", lead, change)
        except ApiError:
            pass  # gone, or not ours to change


def _chosen(pods: dict[str, Object]) -> list[str]:
    """Whose logs are read: the leader's, and of the others as many as can be."""

    def order(uid: str) -> tuple[bool, str, int]:
        labels = pods[uid]["metadata"]["labels"]
        return LEAD not in labels, labels.get("oarlock.dev/role", ""), int(labels.get(INDEX, 0))

    return sorted((uid for uid in pods if "oarlock.dev/role" in pods[uid]["metadata"]["labels"]), key=order)[
        :_MOST
    ]


def _has_company(pod: Object) -> bool:
    """Somebody else's container runs in it."""
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return any(one["name"] != CONTAINER and "running" in one.get("state", {}) for one in statuses)


def _has_left(pod: Object) -> bool:
    """Our container has ended for good."""
    statuses = pod.get("status", {}).get("containerStatuses") or []
    ours = [one.get("state", {}).get("terminated") for one in statuses if one["name"] == CONTAINER]
    return bool(ours) and all(ended is not None and ended.get("exitCode") == 0 for ended in ours)


def _image(pod: Object) -> tuple[str, str]:
    """As the job named it, and the digest of what that was on the pod's node; '' while it is not known."""
    image = next((one["image"] for one in pod["spec"]["containers"] if one["name"] == CONTAINER), "")
    statuses = pod.get("status", {}).get("containerStatuses") or []
    pulled = next((str(one.get("imageID", "")) for one in statuses if one["name"] == CONTAINER), "")
    return image, pulled.rpartition("@")[2].rpartition("//")[2]


def _is_leaving(status: Object) -> bool:
    return bool(status.get("terminating"))


def _is_well(pod: Object) -> bool:
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return False
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or [])
    return status.get("phase") == "Succeeded" or (status.get("phase") == "Running" and ready)


def _is_alive(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Pending", "Running")


def _condition(job: Object) -> Object | None:
    for condition in job.get("status", {}).get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            found: Object = condition
            return found
    return None


def _last_words(pods: Iterable[Object]) -> dict[str, Any] | None:
    """The leader's verdict, from its termination message."""
    for pod in pods:
        if LEAD not in pod["metadata"]["labels"]:
            continue
        for container in pod.get("status", {}).get("containerStatuses") or []:
            try:
                told = json.loads(container["state"]["terminated"]["message"])
            except (KeyError, ValueError):
                continue
            if isinstance(told, dict) and "result" in told:
                return told
    return None
