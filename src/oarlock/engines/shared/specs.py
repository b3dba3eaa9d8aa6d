"""From a job to the spec of its agents, as far as it is the same on every engine."""

from __future__ import annotations

from pathlib import Path

import yaml

from oarlock.agent.protocol.spec import IngestSpec, LimitsSpec, Program, Spec, StageSpec
from oarlock.errors import JobError, OarlockError
from oarlock.job.model import WAYS, Duration, Job, Role, parse
from oarlock.job.stages import Stage
from oarlock.program import coordination, frameworks, imports, mirrored_devices
from oarlock.program.ingest_key import key_of
from oarlock.run import cluster


def resolve(job: Job, folder: Path, run: str) -> Spec:
    """Return the spec of a job; the engine adds the folders. Raises JobError if it cannot train like that."""
    coordination.check(job, folder)
    mirrored_devices.check(job, folder)
    return Spec(
        run=run,
        job=job.name,
        folder="",
        cwd="",
        program=program_of(job),
        stages=_stages(job),
        ingest=_ingest(job, folder),
        sizes=sizes(job),
        folders={},
        least=sizes(job, least=True),
        processes={name: role.processes for name, role in roles(job).items()},
        members={name: list(role.members) for name, role in roles(job).items() if not role.is_equal},
        limits=_limits(job),
        env=dict(job.env),
        modules=_modules(job, folder),
        warm=bool(job.warm),
        observe=job.observe,
        chief_name=job.chief_name,
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


def program_of(what: Job | Stage) -> Program:
    """Return what a job or one of its stages runs."""
    args = list(what.args)
    if what.command:
        return Program("command", list(what.command), args)
    if what.module:
        return Program("module", what.module, args)
    return Program("program", what.program, args)


def _stages(job: Job) -> dict[str, StageSpec]:
    if job.evaluate is None:
        return {}
    stage = StageSpec(program_of(job.evaluate), dict(job.evaluate.env), list(job.evaluate.pip))
    return {"evaluator": stage}


def _ingest(job: Job, folder: Path) -> IngestSpec | None:
    ingest = job.ingest
    if ingest is None:
        return None
    return IngestSpec(
        key=key_of(ingest, folder),
        program=program_of(ingest) if any(getattr(ingest, way) for way in WAYS) else None,
        env=dict(ingest.env),
        pip=list(ingest.pip),
        when=ingest.when,
        alone=ingest.alone,
        sources={name: source.url for name, source in ingest.sources.items()},
        checksums={name: source.sha256 for name, source in ingest.sources.items() if source.sha256},
    )


def with_key(data: str, ingest: IngestSpec | None) -> str:
    """The folder of this ingest's data, in the folder of all the job's data."""
    return data if ingest is None else f"{data.rstrip('/')}/{ingest.key}"


def sizes(job: Job, least: bool = False) -> dict[str, int]:
    """Return the number of tasks per role; `least`: the smallest number."""
    return {name: role.tasks(least) for name, role in roles(job).items()}


def roles(job: Job) -> dict[str, Role]:
    """Return the roles that the job uses."""
    return {name: job.gang[name] for name in cluster.ROLES if name in job.gang}


def _limits(job: Job) -> LimitsSpec:
    limits = job.limits
    return LimitsSpec(
        restarts=limits.restarts,
        stall=_seconds(limits.stall),
        runtime=_seconds(limits.runtime),
        rendezvous=limits.rendezvous.seconds,
        grace=limits.grace.seconds,
        evaluate=limits.evaluate.seconds,
        logs=None if limits.logs is None else limits.logs.bytes,
    )


def _seconds(duration: Duration | None) -> float | None:
    return None if duration is None else duration.seconds


def _modules(job: Job, folder: Path) -> list[str]:
    if job.command or not job.warm or (job.ingest is not None and job.ingest.alone):
        return []
    used = imports.scan(folder, job.program, job.module).modules
    alone = sum(count for role, count in sizes(job).items() if role in cluster.TRAINERS) == 1
    modules = frameworks.preimports(frameworks.framework_of(job, folder), used, alone)
    # It takes 0.05 s. What is kept is for any program with this framework.
    is_used = any(name.partition(".")[0] == "oarlock" for name in used)
    return [*modules, "oarlock"] if is_used or isinstance(job.warm, Duration) else modules
