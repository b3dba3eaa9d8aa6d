"""The engine of a model that is served on a cluster: what the verbs do with its Deployment.

Modules that only a few verbs need are imported by those verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, closing
from typing import Any, NoReturn

from oarlock.agent.net.control import UnreachableError
from oarlock.engines.engine import Engine, Sending
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import STOPPED, Object
from oarlock.engines.kubernetes.claims import remove_pods
from oarlock.engines.kubernetes.deployments import rollout, server_record
from oarlock.engines.kubernetes.lifecycle import adopt, identity
from oarlock.engines.kubernetes.lifecycle.connect import explained
from oarlock.engines.kubernetes.lifecycle.stop_delete import GOING
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.errors import JobError, OarlockError
from oarlock.job.job_file import JobFile
from oarlock.records.run_folder import RunFolder
from oarlock.serving.fleet.announcement import Announcement

_PATIENCE = 600.0  # seconds for pods that are added


class ServingEngine(Engine):
    """Models that are served on a Kubernetes cluster."""

    name = server_record.ENGINE

    def start(
        self,
        jobfile: JobFile,
        name: str | None = None,
        *,
        machines: int | None = None,
        on_send: Callable[[Sending], None] = lambda _: None,
        stdin: int | None = None,
    ) -> RunFolder:
        """Raise JobError: this engine trains nothing."""
        raise JobError(f"the engine {self.name} serves models; `--on kubernetes` trains")

    def serve(
        self, order: ServeOrder, name: str | None = None, on_wait: Callable[[str], bool] = lambda _: True
    ) -> RunFolder:
        """Update what is served."""
        from oarlock.engines.kubernetes.deployments import serve_model

        return serve_model.serve(order, name, on_wait)

    def announced(self, run: RunFolder) -> Announcement | None:
        """Return the addresses inside the cluster and through a forwarded port."""
        from oarlock.engines.kubernetes.deployments import server_address

        with explained(), closing(_reach(run)) as api:
            found = identity.require_deployment(run, api)
            return None if found is None else server_address.note(api, run, found)

    def resume(self, run: RunFolder, *, stdin: int | None = None) -> None:
        """Give a stopped server as many pods as it had."""
        state = run.state()
        if not state.is_over:
            raise OarlockError(f"{run.name} is running; `oarlock stop {run.name}` stops it")
        with explained(), closing(_reach(run)) as api:
            rollout.resume(api, _required(run, api))
        server_record.reopen(run)

    def cancel(self, run: RunFolder, *, now: bool = False) -> None:
        """Remove all pods, which answer the requests they have and end. `now` deletes them without that."""
        with explained(), closing(_reach(run)) as api:
            found = identity.require_deployment(run, api)
            if found is None:
                return
            rollout.stop(api, found)
            for pod in api.all("Pod", identity.of(run).members) if now else ():
                api.delete("Pod", pod["metadata"]["name"], grace=0, only={"uid": pod["metadata"]["uid"]})

    def ask(self, run: RunFolder, question: Mapping[str, Any]) -> dict[str, Any]:
        """Raise UnreachableError: a served model has no leading agent."""
        raise UnreachableError("a served model has no agent that could be asked")

    def delete(self, chosen: Collection[RunFolder], *, now: bool, volumes: bool) -> list[str]:
        """Delete all objects and wait until they are gone. The claims belong to the runs that trained."""
        reached = [(run, _reach(run)) for run in chosen]
        with explained():
            for run, api in reached:
                identity.require_deployment(run, api)
            for run, api in reached:
                rollout.delete(api, identity.of(run), now=now, patience=GOING + (0 if now else run.grace()))
                api.close()
        return []

    def refresh(self, run: RunFolder, *, with_logs: bool = False) -> None:
        """Read the cluster once, unless another client is keeping this record already."""
        if run.state().is_over:
            return
        with explained(), closing(identity.reach(run)) as api:
            server_record.refresh(run, api, with_logs=with_logs)

    def following(self, run: RunFolder) -> AbstractContextManager[Callable[[], bool]]:
        """Have a thread watch the pods, read their logs and write the record."""
        return server_record.following(run, identity.reach)

    def check_scale(self, run: RunFolder, workers: int) -> None:
        """Refuse while the server is stopped, and where an autoscaler would revert the change at once."""
        with explained(), closing(_reach(run)) as api:
            _check_scale(run, api, workers)

    def scale_server(self, run: RunFolder, replicas: int) -> None:
        """Set the number of pods; those that are removed first answer the requests they have."""
        with explained(), closing(_reach(run)) as api:
            rollout.scale(api, _check_scale(run, api, replicas), replicas)
            rollout.wait(api, identity.of(run), _PATIENCE, lambda _: True)
            server_record.refresh(run, api, with_logs=False)

    def adopt(self, name: str) -> RunFolder | None:
        """Adopt only from the namespace of the kubeconfig's current context; None if it cannot be reached."""
        if not adopt.has_kubeconfig():
            return None
        try:
            with closing(Api()) as api:
                found = api.find("Deployment", name)
                is_ours = found is not None and server_record.is_ours(found)
                return server_record.adopt(api, found) if found and is_ours else None
        except OarlockError:
            return None

    def unrecorded(self) -> list[str]:
        """List only those in the namespace of the kubeconfig's current context."""
        return server_record.unrecorded() if adopt.has_kubeconfig() else []

    def pods(self, run: RunFolder) -> list[str]:
        """Return only pods whose containers run."""
        with explained(), closing(_reach(run)) as api:
            return remove_pods.pods(api, identity.of(run))

    def remove_pod(self, run: RunFolder, fault: str, pod: str) -> str | None:
        """Remove a pod; only a disruption budget refuses. A pod that is gone already counts as removed."""
        with explained(), closing(_reach(run)) as api:
            return remove_pods.remove(api, fault, pod)


def _reach(run: RunFolder) -> Api:
    """The cluster of a served model, in order to act on it. Raises if another one has its name now."""
    api = identity.reach(run)
    identity.require_deployment(run, api)
    return api


def _required(run: RunFolder, api: Api) -> Object:
    found = identity.require_deployment(run, api)
    if found is None:
        _gone(run)
    return found


def _gone(run: RunFolder) -> NoReturn:
    raise OarlockError(f"{run.name} is no longer on the cluster; `oarlock serve` starts another")


def _check_scale(run: RunFolder, api: Api, count: int) -> Object:
    found = _required(run, api)
    if STOPPED in (found["metadata"].get("annotations") or {}):
        raise JobError(f"{run.name} is stopped; `oarlock run --resume {run.name}` resumes it")
    if count < 1:
        raise JobError(f"expected 1 or more; `oarlock stop {run.name}` leaves none")
    for one in rollout.listed(api, "HorizontalPodAutoscaler", identity.of(run).selector):
        least, most = one["spec"].get("minReplicas", 1), one["spec"]["maxReplicas"]
        raise JobError(
            f"an autoscaler keeps {run.name} between {least} and {most} pods; "
            f"`oarlock serve --replicas {count}` gives it a fixed number"
        )
    return found
