"""`oarlock run --dry-run`: the resolved job, its tasks, and the environment each would get. Creates nothing."""

from __future__ import annotations

from typing import Any

import click
import yaml

from oarlock import cluster, contract, runs
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
    job = jobfile.job
    gang = contract.Gang(
        run=name,
        generation=1,
        tasks=(tasks := cluster.form(local._sizes(job))),
        # Chosen only when a generation forms: another one each time.
        addresses={task.name: f"127.0.0.1:<port of {task.name}>" for task in tasks},
        max_restarts=job.limits.restarts,
        seed=job.seed,
    )
    record = runs.home() / "runs" / name
    kept = local._folders(job, jobfile.folder, record)
    return [
        {
            "name": task.name,
            "role": task.role,
            "index": task.index,
            "rank": task.rank,
            "env": {
                **job.env,
                **contract.environment(
                    gang,
                    task,
                    kept
                    if task.is_leader
                    else {**kept, "model": str(record / "scratch" / task.name / "model")},
                ),
            },
        }
        for task in tasks
    ]


def _rank(task: dict[str, Any]) -> str:
    return "-" if task["rank"] is None else str(task["rank"])


def _print_variables(heading: str, variables: dict[str, str]) -> None:
    click.secho(f"\n{heading}", bold=True)
    for name in sorted(variables):
        click.echo(f"  {name}={variables[name]}")
