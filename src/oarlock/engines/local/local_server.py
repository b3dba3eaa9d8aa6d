"""A model server on this machine: a run whose only task is the supervisor."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from oarlock.engines.local import gpu_shares, local_record
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.errors import JobError, OarlockError
from oarlock.job.job_file import JobFile
from oarlock.job.model import LONGEST_NAME, Duration, Job, Limits, Role, Roles, Storage
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.serving.settings import MOST_REPLICAS, Settings
from oarlock.system.atomic_file import write_durably
from oarlock.system.polling import wait_for

SUFFIX = "-serve"
_MODULE = "oarlock.serving"
_LONGER = 10.0  # seconds beyond the server's own grace until the agent kills it
_PATIENCE = 600.0  # seconds for replicas to load

StartAgent = Callable[[RunFolder, int, "int | None"], None]


def serve(order: ServeOrder, name: str | None, start_agent: StartAgent) -> RunFolder:
    """Create the record, with the settings in it, and start its agent."""
    job = _job(order)
    held: list[int] = []

    def fill(draft: RunFolder) -> None:
        held.append(draft.hold())
        settings_file = runs.home() / "runs" / draft.name / draft.serving_file.name
        own = msgspec.structs.replace(job, args=(str(settings_file),))
        local_record.fill(draft, JobFile(own, order.folder, None), 1, is_new=name is None)
        write_durably(draft.serving_file, order.settings.to_json().encode())

    try:
        with gpu_shares.choosing(job):
            run = runs.create(job.name, fill, name)
        start_agent(run, held[-1], None)
    finally:
        for fd in held:
            os.close(fd)  # the agent has its own
    return run


def scale(run: RunFolder, replicas: int) -> None:
    """Have the supervisor run that many replicas; return once they answer."""
    if not 1 <= replicas <= MOST_REPLICAS:
        raise JobError(f"a model server has 1 to {MOST_REPLICAS} replicas, not {replicas}")
    settings = settings_of(run)
    write_durably(run.serving_file, replace(settings, replicas=replicas).to_json().encode())

    def has_them() -> bool:
        if not run.is_held():
            raise OarlockError(f"{run.name} {run.state().state} before {replicas} replicas answered")
        leader = run.state().leader
        return leader is not None and leader.metrics.get("replicas") == replicas

    try:
        wait_for(has_them, f"{replicas} replicas of {run.name}", _PATIENCE)
    except TimeoutError as late:
        raise OarlockError(f"{late}; see `oarlock logs {run.name}`") from None


def settings_of(run: RunFolder) -> Settings:
    """Return the settings of a model server. Raises OarlockError if they are damaged."""
    try:
        return Settings.from_json(run.serving_file.read_text())
    except (OSError, ValueError) as problem:
        raise OarlockError(f"{run.serving_file} is damaged: {problem}") from None


def _job(order: ServeOrder) -> Job:
    """The run's own job: the model server as a program. It has no stall limit: it idles without requests."""
    name = order.job.name[: LONGEST_NAME - len(SUFFIX)].rstrip("-") + SUFFIX
    source = order.settings.source
    return Job(
        name=name,
        module=_MODULE,
        env={**order.job.env, **order.env},
        framework=order.framework,
        roles=Roles(worker=Role(gpu=order.part.gpu)),
        storage=Storage(model=source if "://" in source else str(Path(source).absolute())),
        limits=Limits(stall=None, grace=Duration(order.settings.grace + _LONGER)),
        observe=False,
    )
