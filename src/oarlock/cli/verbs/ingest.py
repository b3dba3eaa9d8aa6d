"""`oarlock ingest`: prepare the data of a job, without training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from oarlock.cli.arguments.job_options import cluster_options, load, stage_options
from oarlock.cli.arguments.options import json_option
from oarlock.cli.session import start_run
from oarlock.engines.engine import engine_called
from oarlock.engines.known_engines import TRAINING
from oarlock.errors import JobError
from oarlock.job.job_file import JobFile


@click.command("ingest")
@stage_options
@click.option("--on", type=click.Choice(TRAINING), default="local", help="Where to run it.")
@cluster_options
@click.option("--force", "force_ingest", is_flag=True, help="Prepare the data again if it is there.")
@click.option("-d", "--detach", is_flag=True, help="Return at once; the run continues.")
@json_option("events as JSON lines, then the final state")
def verb(on: str, detach: bool, as_json: bool, **job: Any) -> int:
    """Prepare the data of a job, without training.

    Runs the `ingest` of a job file or a folder as a run of its own, where the training would run it. A later
    `oarlock run` of the same job finds the data.
    """
    engine = engine_called(on)
    start_run.check_options(engine, job)
    jobfile = _alone(load(job, is_here=not engine.traits.sends_program))
    return start_run.start(engine, jobfile, job["name"], detach=detach, as_json=as_json)


def _alone(jobfile: JobFile) -> JobFile:
    """The job without its training: one machine, as large as the ingest needs it."""
    from msgspec import structs

    from oarlock.job.model import Role, Roles

    ingest = jobfile.job.ingest
    if ingest is None:
        where = jobfile.source or "the job"
        raise JobError(f"{where} has no ingest; add `ingest: prepare.py`, or sources to fetch")
    role = Role(cpu=ingest.cpu, memory=ingest.memory)
    job = structs.replace(
        jobfile.job,
        ingest=structs.replace(ingest, alone=True),
        roles=Roles(worker=role),
        evaluate=None,
    )
    return replace(jobfile, job=job)
