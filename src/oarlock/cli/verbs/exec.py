"""`oarlock exec`: a command where a task of a run is, and as the task is."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from oarlock.agent.protocol.pod_paths import CODE
from oarlock.agent.protocol.spec import Spec
from oarlock.cli.arguments.command_words import WithCommand
from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import known, streams
from oarlock.cli.session.signals import leaving_in_order
from oarlock.engines.local import enter_task
from oarlock.errors import JobError, OarlockError
from oarlock.records import runs
from oarlock.run import cluster, contract
from oarlock.run.run_state import RunState, TaskState
from oarlock.screens.output import complain


@click.command("exec", cls=WithCommand)
@run_argument
@click.option("--task", "wanted", metavar="TASK", help="Whose. Default: the leader's.")
@json_option("code, stdout and stderr of COMMAND as JSON")
def verb(name: str | None, wanted: str | None, as_json: bool, words: tuple[str, ...]) -> int:
    """Run a command where a task of a run is, and as it is.

    In its pod and its folder, with the task's variables, but for the addresses of the gang. The exit code is
    the command's.
    """
    run = known.find(name)
    if not words:
        raise click.UsageError(f"no command; `oarlock exec {run.name} -- nvidia-smi` runs one")
    spec = run.spec()
    if run.is_remote:
        return _in_pod(run, spec, wanted, as_json, words)
    task = _task(run.state(), wanted)
    if not Path(spec.cwd).is_dir():
        raise OarlockError(f"the program's folder {spec.cwd} is gone")
    order = _order(run.state(), spec, task, words, str(run.path / "agent.json"))
    if as_json:
        return streams.here_as_json([sys.executable, "-I", "-c", _script(), json.dumps(order)])
    return enter_task.enter(order)


def _in_pod(
    run: runs.RunFolder, spec: Spec, wanted: str | None, as_json: bool, words: tuple[str, ...]
) -> int:
    from oarlock.engines.kubernetes import kubernetes_engine
    from oarlock.engines.kubernetes.claims import task_pod
    from oarlock.engines.kubernetes.lifecycle import identity

    with leaving_in_order(), kubernetes_engine.told():
        kubernetes_engine.refresh(run)
        state = run.state()
        task = _task(state, wanted)
        api = kubernetes_engine.api_of(run)
        pod = task_pod.pod_of(api, identity.of(run), spec, task.name)
        order = _order(state, spec, task, words, f"{CODE}/spec.json")
        order["env"]["TERM"] = streams.term()
        inside = ["python3", "-I", "-c", _script(), json.dumps(order)]
        return streams.in_pod(api, pod, inside, as_json=as_json, types=False)


def _script() -> str:
    return Path(enter_task.__file__).read_text()


def _task(state: RunState, wanted: str | None) -> TaskState:
    if wanted is not None and wanted not in state.tasks:
        raise JobError(f"{state.run} has no task {wanted}; it has {', '.join(state.tasks)}")
    found = state.leader if wanted is None else state.tasks[wanted]
    if found is None:
        raise OarlockError(f"{state.run} has no task yet")
    return found


def _order(state: RunState, spec: Spec, task: TaskState, words: tuple[str, ...], file: str) -> dict[str, Any]:
    """`file` is where the spec lies on the task's machine."""
    order: dict[str, Any] = {"words": list(words), "cwd": spec.cwd, "env": {}, "pid": None}
    if task.state != "running" or state.is_over:
        is_how = state.state if state.is_over else task.state
        complain(f"{task.name} is not running ({is_how}): without its variables")
        return order
    return {**order, "env": _variables(state, spec, task.name), "pid": task.pid, "spec": file}


def _variables(state: RunState, spec: Spec, name: str) -> dict[str, str]:
    """What the contract gives the task, as far as it can be told from the record: not where the others are
    reached, and not who shares a machine with it. A program that is forked sets them after its start, so
    that /proc does not show them."""
    tasks = cluster.form(Counter(one.rpartition("-")[0] for one in state.tasks))
    task = next(one for one in tasks if one.name == name)
    folders = dict(spec.folders)
    if not task.is_leader:
        folders["model"] = f"{spec.folder}/scratch/{name}/model"
    names = [one.name for one in tasks]

    def guess(address: str, machines: list[list[str]]) -> dict[str, str]:
        gang = contract.Gang(
            run=spec.run,
            generation=state.generation,
            tasks=tasks,
            addresses=dict.fromkeys(names, address),
            restarts=state.restarts,
            max_restarts=spec.limits.restarts,
            seed=spec.seed,
            machines=machines,
        )
        return contract.environment(gang, task, folders)

    one, other = guess("one:1", [names]), guess("other:2", [[single] for single in names])
    return {key: value for key, value in one.items() if other.get(key) == value}
