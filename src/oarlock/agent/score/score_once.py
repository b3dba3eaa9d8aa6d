"""Run a job's program once, as the evaluator of given checkpoints, and collect its scores.

It gets the same variables as an evaluator of the run, and as many threads: scores are the same to the last
digit. `State.follow` yields exactly these checkpoints and ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oarlock.agent.host.import_env import import_time
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.score import lone_task
from oarlock.agent.score.score_error import ScoreError
from oarlock.agent.zygote.orders import Launch
from oarlock.checkpoints.store import Checkpoint
from oarlock.run import cluster, contract, placeholders
from oarlock.run.run_events import Event
from oarlock.training.saving.new_checkpoints import ONLY

TASK = "evaluator-0"


def score(spec: Spec, checkpoints: Sequence[Checkpoint], output: int, *, neighbors: int) -> list[Event]:
    """Return a report for each checkpoint that the program scored.

    `output` is the descriptor for what the program prints. `neighbors` is the number of tasks that share the
    cores of the evaluator's machine in the run, itself included. Raises ScoreError, with the program's exit
    code, if the program fails.
    """
    if not Path(spec.cwd).is_dir():
        raise ScoreError(f"the program's folder {spec.cwd} is gone")
    with tempfile.TemporaryDirectory(prefix="oarlock-evaluate-") as scratch:
        launch = _launch(spec, checkpoints, Path(scratch))
        code, reports = lone_task.run(launch, import_time(spec, neighbors), output)
    if code != 0:
        raise ScoreError(f"the evaluator ended with exit code {code}: nothing is stored", code)
    return [_placed(report, checkpoints) for report in reports if report.get("step") is not None]


def _launch(spec: Spec, checkpoints: Sequence[Checkpoint], scratch: Path) -> Launch:
    tasks = cluster.form({**spec.sizes, "evaluator": 1})
    task = next(task for task in tasks if task.name == TASK)
    newest = max(checkpoints, key=lambda one: (one.step, one.generation))
    gang = contract.Gang(
        run=spec.run,
        generation=newest.generation,
        tasks=tasks,
        addresses={one.name: "127.0.0.1:1" for one in tasks},  # an evaluator talks to no other task
        max_restarts=spec.limits.restarts,
        seed=spec.seed,
    )
    folders = {**spec.folders, "checkpoints": str(newest.path.parent), "model": str(scratch)}
    program = spec.program_of("evaluator")
    return Launch(
        task=TASK,
        parent=os.getpid(),
        cwd=spec.cwd,
        program=replace(program, args=placeholders.fill(program.args, gang, task)),
        seed=spec.seed,
        identity=f"{TASK} rank None generation {gang.generation} launch 1",
        env={
            **spec.env_of("evaluator"),
            **contract.environment(gang, task, folders, spec.observe, spec.chief_name),
            **spec.gpus.variables(gang, task),
            ONLY: " ".join(one.name for one in checkpoints),
        },
    )


def _placed(event: Event, checkpoints: Sequence[Checkpoint]) -> Event:
    """A program without `State.follow` names no generation. If there is one checkpoint, it means that."""
    if "generation" in event or len(checkpoints) > 1:
        return event
    return {**event, "step": checkpoints[0].step, "generation": checkpoints[0].generation}
