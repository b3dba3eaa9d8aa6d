"""Score checkpoints of a run on its cluster: in a pod beside its claim, or from its snapshots.

The pod has what the run's evaluator has, and waits; the client runs the evaluator in it by `exec`, reads the
scores, and deletes the pod. If the client is killed, the lease of the pod's Job passes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import IO

from oarlock.agent.protocol.pod_paths import CODE
from oarlock.engines.kubernetes.api import pod_exec
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import ID, Object
from oarlock.engines.kubernetes.claims import claim_pod, claim_session, evaluation_objects
from oarlock.engines.kubernetes.claims.claim_pod import Prepared
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.kubernetes.manifests import groups
from oarlock.errors import OarlockError
from oarlock.job.model import Job
from oarlock.program import agent_zip
from oarlock.records.run_folder import RunFolder
from oarlock.run import run_events
from oarlock.run.run_events import Event
from oarlock.system.lines import Lines

_PATIENCE = 600.0  # seconds: a node may have to pull the image, or to be added
_MODULE = "oarlock.agent.pod.score_pod"
_FRAMEWORKS = ("tensorflow", "torch", "jax")


def score(
    api: Api,
    run: RunFolder,
    step: int | None,
    everything: bool,
    output: IO[bytes],
    notify: Callable[[str], None],
) -> list[Event]:
    """Return the scores. Raises OarlockError, with the program's exit code, if the program fails."""
    job, who, spec = claim_pod.job_of(run), identity.of(run), run.spec()
    name = claim_pod.new_name(run.name, evaluation_objects.PURPOSE)
    prepared = _prepare(api, run, job, name)
    agent = evaluation_objects.config_map(name, who, job.name, agent_zip.pack(_MODULE), spec.to_json())
    where = "beside its claim" if claim_pod.claims_of(prepared.pod["spec"]) else "from its snapshots"
    notify(f"scoring {run.name} in a pod, {where}")
    order = json.dumps({"step": step, "everything": everything})
    with claim_session.running(api, prepared, needs=[agent], patience=_PATIENCE) as pod:
        return _collect(api, pod, ["python3", f"{CODE}/agent.zip", order], output)


def _prepare(api: Api, run: RunFolder, job: Job, name: str) -> Prepared:
    lead = identity.require(run, api)
    who, spec = identity.of(run), run.spec()
    if job.kubernetes.claim is None and not spec.snapshots:
        raise OarlockError(
            f"{run.name} has left no checkpoints: its job has no claim and no storage.snapshots"
        )
    if job.kubernetes.claim is None and lead is None:
        raise OarlockError(
            f"the cluster no longer has the program of {run.name} (kubernetes.ttl); "
            f"`oarlock evaluate {run.name}` scores it here"
        )
    leader, evaluator = _specs(api, run, job, lead)
    pod = evaluation_objects.pod(name, who, job.name, evaluator, leader, name)
    claim_pod.place(api, who, pod["spec"], f"`oarlock evaluate {run.name}` scores it here")
    return Prepared(pod, lead)


def _specs(api: Api, run: RunFolder, job: Job, lead: Object | None) -> tuple[Object, Object | None]:
    """The specs of the leader's pod and of the evaluator's, if the run has one."""
    if lead is not None:
        found = api.find("Job", f"{run.name}-evaluator")
        is_ours = found and found["metadata"]["labels"].get(ID) == lead["metadata"]["labels"].get(ID)
        evaluator = found["spec"]["template"]["spec"] if found and is_ours else None
        return lead["spec"]["template"]["spec"], evaluator
    framework = next((one for one in _FRAMEWORKS if one in run.spec().modules), "none")
    described = {
        group.role: claim_pod.template_of(run.name, job, group, framework)["spec"]
        for group in reversed(groups.of(job))  # the leader is the first of its role
    }
    return described[groups.of(job)[0].role], described.get("evaluator")


def _collect(api: Api, pod: str, words: list[str], output: IO[bytes]) -> list[Event]:
    command = pod_exec.Command(api, pod, words, output)
    lines, events = Lines(), []
    for piece in command.output():
        events += [run_events.decode(line.decode(errors="replace")) for line in lines.feed(piece)]
    for event in events:
        if event is not None and event["kind"] == "end":
            raise _failure(str(event.get("reason")), int(event.get("code") or 1))
    if command.code:
        claim_session.require(api, pod)  # it may have used too much memory
        raise _failure(f"the evaluator's pod ended with exit code {command.code}", command.code)
    return [event for event in events if event is not None and event["kind"] == "report"]


def _failure(text: str, code: int) -> OarlockError:
    problem = OarlockError(text)
    problem.exit_code = code
    return problem
