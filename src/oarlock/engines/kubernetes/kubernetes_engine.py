"""What verbs do with a run on a cluster, given its record here."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from oarlock.agent.net.control import UnreachableError
from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import ID, LEAD, MANAGED, RUN, STOPPED, Object, selecting
from oarlock.engines.kubernetes.follow.ledger import Ledger
from oarlock.engines.kubernetes.follow.mirror import Mirror
from oarlock.engines.kubernetes.lifecycle import ask_leader, identity, repair, stop_delete, submit
from oarlock.engines.kubernetes.manifests.payload import Parcel
from oarlock.errors import JobError, OarlockError, UnknownRun
from oarlock.job.job_file import JobFile
from oarlock.job.model import Job
from oarlock.records import runs
from oarlock.records.runs import RunFolder

_POLL = 0.05
_GOING = 60.0  # seconds for objects to go, beyond the grace
_RETRY = 0.5  # seconds between two tries at a record that somebody else writes


def api_for(job: Job, context: str | None = None, namespace: str | None = None) -> Api:
    """Flags win over the job, the job over the kubeconfig."""
    return Api(context or job.kubernetes.context, namespace or job.kubernetes.namespace)


def start(
    jobfile: JobFile, name: str | None, api: Api, on_packed: Callable[[Parcel], None] = lambda _: None
) -> RunFolder:
    for known in runs.all_runs():
        if known.is_remote and (known.path / submit.UNSENT).exists():
            with suppress(OarlockError), told():  # its cluster may be away: it is tried again next time
                repair.settle(known, identity.reach(known))
    with told():
        return submit.start(jobfile, name, api, on_packed)


def adopt(name: str) -> RunFolder | None:
    """A record of a run that was sent from elsewhere, if the current context's namespace has it."""
    try:
        api = Api()
        leads = api.all("Job", f"{selecting(name)},{LEAD}=true")
        if not leads:
            return None
        code = api.get("ConfigMap", f"{name}-code-0")["data"]
    except OarlockError:
        return None
    lead = leads[0]
    created = submit.seconds(lead["metadata"]["creationTimestamp"])
    spec = stop_delete.spec_in(code, name)

    def fill(draft: RunFolder) -> None:
        identity.write(draft, api, lead["metadata"]["labels"].get(ID, ""))
        identity.note(draft, lead)
        submit.fill(draft, code["job.yaml"], spec, created)

    return runs.create(spec.job, fill, name)


def others(known: Collection[str]) -> list[str]:
    """Runs in the current context's namespace that have no record here."""
    leads = Api().all("Job", f"{MANAGED}=oarlock,{LEAD}=true")
    return sorted({lead["metadata"]["labels"][RUN] for lead in leads} - set(known))


def resume(run: RunFolder) -> None:
    """Go on with a run that was stopped."""
    state = run.state()
    if state.state == "succeeded":
        raise OarlockError(f"{run.name} has succeeded; there is nothing to go on with")
    if not state.is_over:
        raise OarlockError(f"{run.name} is running; `oarlock stop {run.name}` ends it")
    api = api_of(run)
    with told():
        identity.note(run, stop_delete.resume(api, identity.of(run)))
    reopen(run)


def ask_to_stop(run: RunFolder) -> None:
    api = api_of(run)
    with told():
        stop_delete.stop(api, identity.of(run))


def stop(run: RunFolder, *, now: bool, patience: float) -> None:
    """Stop it, and see it to its end: its last lines go with its pods."""
    api = api_of(run)
    with watching(run) as goes_on:
        with told():
            stop_delete.stop(api, identity.of(run), now=now)
        deadline = time.monotonic() + patience
        while goes_on():
            if time.monotonic() > deadline:
                raise OarlockError(f"{run.name} has not ended after {patience:g} s")
            time.sleep(_POLL)


def ask(run: RunFolder, question: dict[str, Any]) -> dict[str, Any]:
    """The leading agent's answer. Raises UnreachableError while there is none."""
    api = api_of(run)
    with told():
        leading = ask_leader.leading(api, identity.of(run))
        found = [pod for pod in leading if "deletionTimestamp" not in pod["metadata"]]
        if not found:
            problem = run.state().problem
            raise UnreachableError(f"its leading pod is not running{f': {problem}' if problem else ''}")
        return ask_leader.ask(api, found[-1], question)


def check_scale(run: RunFolder, workers: int) -> None:
    """Raises JobError where a cluster's run cannot have that many."""
    api = api_of(run)
    with told():
        _worker_job(run, api, workers)


def scale(run: RunFolder, workers: int) -> None:
    """As many pods as there are to be workers: the highest indexes go first, new ones come last."""
    api = api_of(run)
    with told():
        job, count = _worker_job(run, api, workers)
        if job is not None:
            stop_delete.scale(api, job, count)


def _worker_job(run: RunFolder, api: Api, workers: int) -> tuple[Object | None, int]:
    """The Job of all workers but a leading one, and how many it is to have."""
    found = submit.jobs_of(api, identity.of(run))
    if any(STOPPED in job["metadata"].get("annotations", {}) for job in found):
        raise JobError(f"{run.name} is being stopped; `oarlock run --resume {run.name}` goes on with it then")
    jobs = [job for job in found if job["metadata"]["name"].startswith(f"{run.name}-worker")]
    if len(jobs) > 1:
        raise JobError(f"{run.name} has workers of several kinds: which of them is not for `scale` to choose")
    leads = not run.spec().sizes.get("chief")
    count = workers - leads
    if not jobs and count:
        raise JobError(
            f"{run.name} was started with one worker, and has no Job for more; start it with min..max"
        )
    if not jobs:
        return None, 0
    return jobs[0], count


def delete(chosen: Collection[RunFolder], *, now: bool, volumes: bool) -> list[str]:
    """All their objects, until they are gone, then their claims. The names of claims that were kept: another
    user's always are. Raises before anything is deleted where a name means another run by now, or a claim
    has other users."""
    reached = [(run, api_of(run)) for run in chosen]
    claims: dict[str, tuple[Api, Object]] = {}  # by uid: runs of one job share them
    with told():
        for run, api in reached:
            for claim in stop_delete.claims_of(api, run.state().job):
                claims[claim["metadata"]["uid"]] = api, claim
                if volumes and stop_delete.is_mine(api, claim):
                    _require_alone(api, run, claim, chosen)
        for run, api in reached:
            stop_delete.delete(api, identity.of(run), now=now, patience=_GOING + (0 if now else _grace(run)))
        going = [one for one in claims.values() if volumes and stop_delete.is_mine(*one)]
        for api, claim in going:
            stop_delete.delete_claims(api, [claim], _GOING)
    return [claim["metadata"]["name"] for api, claim in claims.values() if (api, claim) not in going]


def _require_alone(api: Api, run: RunFolder, claim: Object, chosen: Collection[RunFolder]) -> None:
    """No other run of the job is on the cluster, but for those that are deleted with it."""
    names = [one.name for one in chosen]
    others = stop_delete.users_of(api, run.state().job, but=names)
    if others:
        together = " ".join([*names, *others])
        raise OarlockError(
            f"claim {claim['metadata']['name']} is also used by {', '.join(others)}; "
            f"`oarlock delete --volumes {together}` deletes them together"
        )


def _grace(run: RunFolder) -> float:
    return run.spec().limits.grace


def reopen(run: RunFolder) -> None:
    """What was the end is not: new events follow."""
    held = run.hold()
    try:
        (run.path / "result.json").unlink(missing_ok=True)
        ledger = Ledger(run)
        ledger.emit("agent", pid=None)
        ledger.commit()
    finally:
        os.close(held)


def api_of(run: RunFolder) -> Api:
    """To act on it, or to look into it: where it was sent to, and where no other run has its name now. Raises
    OarlockError."""
    with told():
        api = identity.reach(run)
        identity.require(run, api)
    return api


def _watched(run: RunFolder) -> Api:
    """To keep its record: if another run has its name, then it is gone itself, which its id tells. Runs of
    earlier versions have none."""
    return identity.reach(run) if identity.of(run).id else api_of(run)


@contextmanager
def told() -> Iterator[None]:
    """Around calls to a cluster: what goes wrong ends in one line and what to do about it."""
    try:
        yield
    except ApiError as error:
        problem = diagnose.explain(error)
        raise OarlockError(f"{problem.what}; {problem.fix}") from None


def refresh(run: RunFolder, *, with_logs: bool = False) -> None:
    """Bring the record up to what the cluster says now: its events, or the tasks' lines too. A record that
    somebody else writes is fresh."""
    if run.state().is_over:
        return
    with told():
        if not repair.settle(run, identity.reach(run)):
            raise UnknownRun(f"{run.name} was never sent completely, and has been removed")
    try:
        held = run.hold(seconds=0)
    except OarlockError:
        return
    try:
        with told():
            Mirror(run, _watched(run)).catch_up(with_logs=with_logs)
    finally:
        os.close(held)


@contextmanager
def watching(run: RunFolder) -> Iterator[Callable[[], bool]]:
    """Keep the record up to date meanwhile; the function says whether there is more to come, and raises
    what keeps us from seeing it."""
    watching = _Watching(run)
    watching.start()
    try:
        yield watching.goes_on
    finally:
        watching.stop.set()
        watching.join()


class _Watching(threading.Thread):
    def __init__(self, run: RunFolder) -> None:
        super().__init__(name=f"watching {run.name}", daemon=True)
        self.run_folder = run
        self.stop = threading.Event()
        self.error: OarlockError | None = None

    def goes_on(self) -> bool:
        is_alive = self.is_alive()
        if self.error is not None:
            raise self.error
        return is_alive

    def run(self) -> None:
        """One client at a time writes the record; the others read along, and take over when it leaves."""
        while not self.stop.is_set() and not self.run_folder.state().is_over:
            try:
                held = self.run_folder.hold(seconds=0)
            except OarlockError:
                self.stop.wait(_RETRY)
                continue
            try:
                with told():
                    Mirror(self.run_folder, _watched(self.run_folder)).follow(self.stop)
            except OarlockError as error:
                self.error = error
                return
            except FileNotFoundError:
                self.error = OarlockError(f"{self.run_folder.name} was deleted")
                return
            finally:
                os.close(held)
