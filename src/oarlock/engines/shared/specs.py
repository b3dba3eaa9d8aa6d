"""From a job to the spec of its agents, as far as it is the same on every engine."""

from __future__ import annotations

from pathlib import Path

import yaml

from oarlock.agent.protocol.spec import Limits, Program, Spec
from oarlock.errors import JobError, OarlockError
from oarlock.job.model import Duration, Job, Role, parse
from oarlock.program import frameworks, imports
from oarlock.run import cluster


def resolve(job: Job, folder: Path, run: str) -> Spec:
    """Return the spec of a job; the engine adds the folders."""
    return Spec(
        run=run,
        job=job.name,
        folder="",
        cwd="",
        program=_program(job),
        sizes=sizes(job),
        folders={},
        least=sizes(job, least=True),
        processes={name: role.processes for name, role in roles(job).items()},
        limits=_limits(job),
        env=dict(job.env),
        modules=_modules(job, folder),
        warm=bool(job.warm),
        observe=job.observe,
        seed=job.seed,
        snapshots=job.storage.snapshots or "",
    )


def job_of(text: str, where: str) -> Job:
    """Return a job that was stored in a record. Raises OarlockError if it is damaged or a later version's."""
    try:
        data = yaml.safe_load(text)
        if not isinstance(data, dict):
            raise JobError("it is not a mapping")
        return parse(data)
    except yaml.YAMLError:
        raise OarlockError(f"{where} is damaged: it is not YAML") from None
    except JobError as problem:
        raise OarlockError(f"{where} is damaged, or was written by a later Oarlock: {problem}") from None


def _program(job: Job) -> Program:
    args = list(job.args)
    if job.command:
        return Program("command", list(job.command), args)
    if job.module:
        return Program("module", job.module, args)
    return Program("program", job.program, args)


def sizes(job: Job, least: bool = False) -> dict[str, int]:
    """Return the number of tasks per role; `least`: the smallest number."""
    return {
        name: (role.replicas.min if least else role.replicas.max) * role.processes
        for name, role in roles(job).items()
    }


def roles(job: Job) -> dict[str, Role]:
    """Return the roles that the job uses."""
    return {name: role for name in cluster.ROLES if (role := getattr(job.roles, name))}


def _limits(job: Job) -> Limits:
    limits = job.limits
    return Limits(
        restarts=limits.restarts,
        stall=_seconds(limits.stall),
        runtime=_seconds(limits.runtime),
        rendezvous=limits.rendezvous.seconds,
        grace=limits.grace.seconds,
        logs=None if limits.logs is None else limits.logs.bytes,
    )


def _seconds(duration: Duration | None) -> float | None:
    return None if duration is None else duration.seconds


def _modules(job: Job, folder: Path) -> list[str]:
    if job.command or not job.warm:
        return []
    used = imports.scan(folder, job.program, job.module).modules
    return frameworks.preimports(frameworks.framework_of(job, folder), used)
