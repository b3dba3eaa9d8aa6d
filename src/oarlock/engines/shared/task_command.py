"""The order for a command that runs as a task does: its folder, its variables, its process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oarlock.agent.protocol.spec import Spec
from oarlock.engines.shared import enter_task
from oarlock.engines.shared.command_streams import Streams
from oarlock.run import cluster, contract
from oarlock.run.run_state import RunState


def script() -> str:
    """Return the text of the program that carries out an order, for an interpreter without Oarlock."""
    return Path(enter_task.__file__).read_text()


def plain(words: Sequence[str], folder: str) -> dict[str, Any]:
    """Return the order for a command in a folder, with this process's variables."""
    return {"words": list(words), "cwd": folder, "env": {}, "pid": None}


def as_task(
    state: RunState,
    spec: Spec,
    task: str,
    words: Sequence[str],
    spec_file: str,
    notify: Callable[[str], None],
) -> dict[str, Any]:
    """Return the order for a command beside a task; with the task's variables while the task runs.

    `spec_file` is the path of the spec on the task's machine.
    """
    order = plain(words, spec.cwd)
    how = state.state if state.is_over else state.tasks[task].state
    if how != "running":
        notify(f"{task} is not running ({how}): the command runs without its variables")
        return order
    pid = state.tasks[task].pid
    return {**order, "env": _variables(state, spec, task), "pid": pid, "spec": spec_file}


def run_here(order: dict[str, Any], streams: Streams) -> int:
    """Become the command, or run it as a child if its output is captured."""
    if not streams.are_captured:
        enter_task.enter(order)
    words = [sys.executable, "-I", "-c", script(), json.dumps(order)]
    done = subprocess.run(words, capture_output=True, check=False)
    streams.stdout.write(done.stdout)
    streams.stderr.write(done.stderr)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _variables(state: RunState, spec: Spec, name: str) -> dict[str, str]:
    """Return the task's variables as far as the record tells them.

    The addresses of the other tasks, and which of several machines each is on, are not in the record. A
    program that is forked sets its variables after its start, so that /proc does not show them.
    """
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
        variables = contract.environment(gang, task, folders, chief_name=spec.chief_name)
        return {**variables, **spec.gpus.variables(gang, task)}

    apart = [names] if spec.is_alone else [[single] for single in names]
    one, other = guess("one:1", [names]), guess("other:2", apart)
    return {key: value for key, value in one.items() if other.get(key) == value}
