"""Prepare a run's data where it is missing, as its ingest does: a pod that mounts no claim has none."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from oarlock.agent.host.import_env import import_time
from oarlock.agent.ingest.data_folder import DataFolder
from oarlock.agent.ingest.steps import programs
from oarlock.agent.protocol.spec import IngestSpec, Program, Spec
from oarlock.agent.score import lone_task
from oarlock.agent.score.score_error import ScoreError
from oarlock.agent.zygote.orders import Launch
from oarlock.run.cluster import Task
from oarlock.run.contract import Gang, environment

_TASK = Task("ingest", 0, rank=0)


def is_missing(spec: Spec) -> bool:
    """Whether the run has an ingest whose data is not on this machine."""
    if spec.ingest is None or spec.ingest.when == "never":
        return False
    return DataFolder(Path(spec.folders["data"])).made_by() is None


def prepare(spec: Spec, output: int) -> None:
    """Run the ingest if its data is not here. Raises ScoreError if it fails, or another run is doing it."""
    if spec.ingest is None or not is_missing(spec):
        return
    folder = DataFolder(Path(spec.folders["data"]))
    try:
        lock = folder.try_lock(spec.run)
    except OSError as problem:
        raise ScoreError(f"{problem.filename or folder.work} cannot be locked: {problem.strerror}") from None
    if lock is None:
        raise ScoreError(f"{folder.holder()} is preparing the data: try again when it is done")
    try:
        if is_missing(spec):  # unless another process was faster
            for program in programs(spec, spec.ingest, folder):
                _run(spec, spec.ingest, program, folder, output)
    finally:
        os.close(lock)


def _run(spec: Spec, ingest: IngestSpec, program: Program, folder: DataFolder, output: int) -> None:
    alone = replace(spec, env={**spec.env, **ingest.env}, sizes={"ingest": 1})
    gang = Gang(
        run=spec.run, generation=1, tasks=(_TASK,), addresses={_TASK.name: "127.0.0.1:1"}, seed=spec.seed
    )
    folders = {**spec.folders, "data": str(folder.draft), "sources": str(folder.sources)}
    launch = Launch(
        task=_TASK.name,
        parent=os.getpid(),
        cwd=spec.cwd,
        program=program,
        seed=spec.seed,
        identity=f"{_TASK.name} rank 0 generation 1 launch 1",
        env={**alone.env, **environment(gang, _TASK, folders, spec.observe, spec.chief_name)},
    )
    code, _ = lone_task.run(launch, import_time(alone, 1), output)
    if code:
        raise ScoreError(f"the ingest ended with exit code {code}: nothing is scored", code)
