"""The Kubernetes engine: one Job per role on a cluster.

The run supervises itself. A client sends it, acts on it, and keeps a record of it while it follows the run.
Modules for a few verbs are imported by those verbs: else `status` and `logs` would take half as long again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from oarlock.agent.net.control import UnreachableError
from oarlock.agent.protocol.spec import Spec
from oarlock.engines.before_start import Finding, Rendered
from oarlock.engines.engine import Engine, Sending
from oarlock.engines.kubernetes import delete_runs
from oarlock.engines.kubernetes.claims import board_deployment, remove_pods
from oarlock.engines.kubernetes.claims.same_claim import is_mounted_by
from oarlock.engines.kubernetes.follow import background
from oarlock.engines.kubernetes.lifecycle import adopt, identity, leading_agent, repair, stop_delete, submit
from oarlock.engines.kubernetes.lifecycle.connect import api_for, api_of, explained
from oarlock.engines.shared.checkpoint_place import CheckpointFolder
from oarlock.engines.shared.command_streams import Streams
from oarlock.engines.shared.pull_result import Pulled, Show
from oarlock.engines.shared.standing_board import StandingBoard
from oarlock.errors import OarlockError
from oarlock.job.job_file import JobFile
from oarlock.job.model import Job
from oarlock.records.run_folder import RunFolder
from oarlock.run.run_events import Event

if TYPE_CHECKING:
    from oarlock.engines.kubernetes.manifests.payload import Parcel
    from oarlock.engines.shared.predictor import Predictor
    from oarlock.engines.shared.serve_order import ServeOrder
    from oarlock.engines.shared.tensorboard_process import Board


class KubernetesEngine(Engine):
    """Runs on a Kubernetes cluster."""

    name = "kubernetes"

    def start(
        self,
        jobfile: JobFile,
        name: str | None = None,
        *,
        machines: int | None = None,
        on_send: Callable[[Sending], None] = lambda _: None,
        stdin: int | None = None,
    ) -> RunFolder:
        """Send the run to the cluster; first finish or remove what dead clients sent in part."""

        def on_packed(parcel: Parcel) -> None:
            on_send(Sending(parcel.files, parcel.size, parcel.withheld, parcel.warnings))

        repair.settle_unsent()
        with explained():
            return submit.start(jobfile, name, api_for(jobfile.job), on_packed)

    def checkpoints_for(self, job: Job, run: RunFolder) -> str | None:
        """Return the place on the claim, if both runs mount the same one."""
        return run.folder("checkpoints") if is_mounted_by(job, run) else None

    def spec_for(self, jobfile: JobFile, record: Path, machines: int) -> Spec:
        """Return the spec that all pods share. Each learns its own address, which replaces `bind`."""
        from oarlock.engines.kubernetes.manifests import packing

        spec = packing.spec_for(jobfile.job, jobfile.folder, record.name)
        return replace(spec, bind="")

    def plan(self, jobfile: JobFile, name: str) -> dict[str, Any]:
        """Plan by a dry run on the cluster; without an answer, return what is known here."""
        from oarlock.engines.kubernetes.plan import preview

        return preview.plan(jobfile, name)

    def render(self, jobfile: JobFile, name: str) -> Rendered:
        """Render for `kubectl apply`. Asks no cluster."""
        from oarlock.engines.kubernetes.manifests import yaml_file

        return yaml_file.render(jobfile, name)

    def render_server(self, order: ServeOrder, name: str | None, form: str) -> Rendered:
        """Render a Deployment and all that it needs, or KServe's InferenceService."""
        from oarlock.engines.kubernetes.deployments import server_yaml

        render = server_yaml.deployment if form == "deployment" else server_yaml.inference_service
        return render(order, name)

    def check(self, *, context: str | None, namespace: str | None, image: str | None) -> Iterator[Finding]:
        """Check what the cluster allows this user, by reviews and dry runs."""
        from oarlock.engines.kubernetes.plan import cluster_access

        return cluster_access.findings(context, namespace, image)

    def resume(self, run: RunFolder, *, stdin: int | None = None) -> None:
        """Resume the Jobs of a stopped run; create those of an ended one again from its own objects."""
        state = run.state()
        if state.state == "succeeded":
            raise OarlockError(f"{run.name} has succeeded; there is nothing to resume")
        if not state.is_over:
            raise OarlockError(f"{run.name} is running; `oarlock stop {run.name}` stops it")
        api = api_of(run)
        with explained():
            identity.note(run, stop_delete.resume(api, identity.of(run)))
        background.reopen(run)

    def cancel(self, run: RunFolder, *, now: bool = False) -> None:
        """Suspend the Jobs, which ends their pods; `now` also deletes the pods without their grace."""
        api = api_of(run)
        with explained():
            stop_delete.stop(api, identity.of(run), now=now)

    def ask(self, run: RunFolder, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask through exec in a leading pod that is not being deleted."""
        api = api_of(run)
        with explained():
            leading = leading_agent.pods(api, identity.of(run))
            found = [pod for pod in leading if "deletionTimestamp" not in pod["metadata"]]
            if not found:
                problem = run.state().problem
                raise UnreachableError(f"its leading pod is not running{f': {problem}' if problem else ''}")
            return leading_agent.ask(api, found[-1], dict(question))

    def delete(self, chosen: Collection[RunFolder], *, now: bool, volumes: bool) -> list[str]:
        """Delete all objects of the runs, wait until they are gone, then delete their claims.

        Claims of another user are always kept. Raises OarlockError before anything is deleted if a name
        belongs to another run by now, or a claim has other users.
        """
        return delete_runs.delete(chosen, now=now, volumes=volumes)

    def refresh(self, run: RunFolder, *, with_logs: bool = False) -> None:
        """Read the cluster once, unless another client is keeping this record already."""
        background.refresh(run, with_logs=with_logs)

    def following(self, run: RunFolder) -> AbstractContextManager[Callable[[], bool]]:
        """Have a thread watch the pods, read their logs and write the record."""
        return background.following(run)

    def check_scale(self, run: RunFolder, workers: int) -> None:
        """Refuse while the run is being stopped, and for workers of several kinds."""
        api = api_of(run)
        with explained():
            stop_delete.worker_job(run, api, workers)

    def scale(self, run: RunFolder, workers: int) -> None:
        """Give the Job of the workers that many pods: the highest indexes go first, new ones come last."""
        api = api_of(run)
        with explained():
            job, count = stop_delete.worker_job(run, api, workers)
            if job is not None:
                stop_delete.scale(api, job, count)

    def adopt(self, name: str) -> RunFolder | None:
        """Adopt only from the namespace of the kubeconfig's current context; None if it cannot be reached."""
        return adopt.adopt(name)

    def unrecorded(self) -> list[str]:
        """List only those in the namespace of the kubeconfig's current context."""
        return adopt.unrecorded()

    def exec(
        self, run: RunFolder, task: str, words: Sequence[str], streams: Streams, notify: Callable[[str], None]
    ) -> int:
        """Run the command through exec in the task's own pod."""
        from oarlock.engines.kubernetes import pod_commands

        return pod_commands.beside_task(run, task, words, streams, notify)

    def inspect(
        self,
        run: RunFolder,
        words: Sequence[str],
        streams: Streams,
        *,
        image: str | None,
        writes: bool,
        notify: Callable[[str], None],
    ) -> int:
        """Run the command in a temporary pod that mounts the run's claim."""
        from oarlock.engines.kubernetes import pod_commands

        return pod_commands.beside_files(run, words, streams, image=image, writes=writes, notify=notify)

    def tensorboard(
        self, run: RunFolder, port: int | None, image: str | None
    ) -> AbstractContextManager[Board]:
        """Run TensorBoard in a temporary pod that mounts the run's claim, behind a port of this machine."""
        from oarlock.engines.kubernetes import pod_commands

        return pod_commands.board(run, port, image)

    def deploy_board(self, run: RunFolder, image: str | None, host: str | None) -> StandingBoard:
        """Create a Deployment that mounts the run's claim, a Service and, with `host`, an Ingress."""
        api = api_of(run)
        with explained():
            return board_deployment.deploy(api, run, image, host)

    def find_board(self, run: RunFolder) -> StandingBoard | None:
        """Look in the run's namespace."""
        api = api_of(run)
        with explained():
            return board_deployment.find(api, identity.of(run))

    def delete_board(self, run: RunFolder) -> bool:
        """Delete the board; its pod has left the claim when this returns."""
        api = api_of(run)
        with explained():
            return board_deployment.delete(api, identity.of(run))

    def serve(
        self, order: ServeOrder, name: str | None = None, on_wait: Callable[[str], bool] = lambda _: True
    ) -> RunFolder:
        """Serve as a Deployment, whose record names the engine that acts on it from then on."""
        from oarlock.engines.kubernetes.deployments import serve_model

        return serve_model.serve(order, name, on_wait)

    def predictors(
        self, order: ServeOrder, workers: int, notify: Callable[[str], None]
    ) -> AbstractContextManager[Sequence[Predictor]]:
        """Load the model in the pods of one Job, behind ports of this machine."""
        from oarlock.engines.kubernetes.predictions import predict_model

        return predict_model.predictors(order, workers, notify)

    @contextmanager
    def checkpoints(self, run: RunFolder, *, writes: bool) -> Iterator[CheckpointFolder]:
        """Open the folder on the run's claim, which a pod reads."""
        from oarlock.engines.kubernetes.claims import claim_checkpoints

        api, path = api_of(run), run.folder("checkpoints")
        with claim_checkpoints.opened(api, run, path, writes=writes) as folder:
            yield folder

    def pull(self, run: RunFolder, what: str | None, to: Path, show: Show, *, replaces: bool) -> Pulled:
        """Copy from the leading pod while the run lasts, then from a temporary pod."""
        from oarlock.engines.kubernetes.claims import pull_claims

        names = pull_claims.KINDS[what] if what else pull_claims.DEFAULT
        with explained():
            return pull_claims.fetch(api_of(run), run, names, to, show, replaces=replaces)

    def evaluate(
        self,
        run: RunFolder,
        step: int | None,
        *,
        everything: bool,
        output: IO[bytes],
        notify: Callable[[str], None],
    ) -> list[Event]:
        """Score in a pod beside the run's claim, which also has its data; without a claim, from snapshots."""
        from oarlock.engines.kubernetes.claims import evaluation_pod

        if run.engine != self.name:
            raise OarlockError(
                f"{run.name} did not run on a cluster: `oarlock evaluate {run.name}` scores it here"
            )
        with explained():
            return evaluation_pod.score(api_of(run), run, step, everything, output, notify)

    def pods(self, run: RunFolder) -> list[str]:
        """Return only pods whose containers run."""
        with explained(), closing(api_of(run)) as api:
            return remove_pods.pods(api, identity.of(run))

    def remove_pod(self, run: RunFolder, fault: str, pod: str) -> str | None:
        """Remove a pod; only a disruption budget refuses. A pod that is gone already counts as removed."""
        with explained(), closing(api_of(run)) as api:
            return remove_pods.remove(api, fault, pod)
