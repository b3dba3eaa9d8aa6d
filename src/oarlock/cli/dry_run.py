"""`oarlock run --dry-run`: the resolved job, its tasks and the environment of each. Creates nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml

from oarlock import cluster, contract, runs
from oarlock.agent import defaults
from oarlock.agent.spec import Spec
from oarlock.cli.output import print_json, print_table
from oarlock.engines import local
from oarlock.job import to_data
from oarlock.jobfile import JobFile


def show(jobfile: JobFile, name: str | None, as_json: bool) -> None:
    tasks = _tasks(jobfile, name or f"{jobfile.job.name}-xxxx")
    if as_json:
        source = str(jobfile.source) if jobfile.source else None
        job = to_data(jobfile.job, full=True)
        print_json({"job": job, "folder": str(jobfile.folder), "source": source, "tasks": tasks})
        return
    click.echo(yaml.safe_dump(to_data(jobfile.job), sort_keys=False))
    print_table(("TASK", "RANK"), [(task["name"], _rank(task)) for task in tasks])
    common = dict(set.intersection(*(set(task["env"].items()) for task in tasks)))
    _print_variables("every task", common)
    for task in tasks:
        _print_variables(task["name"], {k: v for k, v in task["env"].items() if k not in common})


def _tasks(jobfile: JobFile, name: str) -> list[dict[str, Any]]:
    job, record = jobfile.job, runs.home() / "runs" / name
    spec = Spec(
        run=name,
        folder=str(record),
        cwd=str(jobfile.folder),
        program=local._program(job),
        sizes=local._sizes(job),
        folders=local._folders(job, jobfile.folder, record),
        env=dict(job.env),
    )
    tasks = cluster.form(spec.sizes)
    gang = contract.Gang(
        run=name,
        generation=1,
        tasks=tasks,
        # Chosen only when a generation forms: others each time.
        addresses={task.name: f"127.0.0.1:<port of {task.name}>" for task in tasks},
        max_restarts=job.limits.restarts,
        seed=job.seed,
    )
    common = {**defaults.import_time(spec, len(tasks)), **spec.env}
    return [
        {
            "name": task.name,
            "role": task.role,
            "index": task.index,
            "rank": task.rank,
            "env": {**common, **contract.environment(gang, task, _folders(spec, task))},
        }
        for task in tasks
    ]


def _folders(spec: Spec, task: cluster.Task) -> dict[str, str]:
    """Only what the leader saves is kept."""
    scratch = Path(spec.folder) / "scratch" / task.name / "model"
    return spec.folders if task.is_leader else {**spec.folders, "model": str(scratch)}


def _rank(task: dict[str, Any]) -> str:
    return "-" if task["rank"] is None else str(task["rank"])


def _print_variables(heading: str, variables: dict[str, str]) -> None:
    click.secho(f"\n{heading}", bold=True)
    for name in sorted(variables):
        click.echo(f"  {name}={variables[name]}")
