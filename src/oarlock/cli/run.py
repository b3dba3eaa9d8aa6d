"""`oarlock run`: start a run and, unless it is detached, stand beside it until it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from oarlock import jobfile, runs
from oarlock.cli import attached, shape
from oarlock.cli.following import Interrupts
from oarlock.cli.options import json_option, run_names
from oarlock.cli.output import hint, print_json_line
from oarlock.engines import local
from oarlock.errors import JobError
from oarlock.watch import Watch


class _Run(click.Command):
    """Options of ours come before TARGET; all that follows it, or `--`, is the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        if at < len(args):
            # `train.py a -- b`: what is behind the first argument is the program's, dashes included.
            own = ctx.params["args"]
            ctx.params["args"] = (*own, *args[at if own else at + 1 :])
        return rest


@click.command("run", cls=_Run, context_settings={"allow_interspersed_args": False})
@click.argument("target", required=False, type=click.Path())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "--workers", metavar="N", help="How many workers: a number, or min..max.")
@click.option("--ps", metavar="N", help="How many parameter servers.")
@click.option("--evaluator", is_flag=True, help="Add an evaluator.")
@click.option("--name", help="The run's name. Default: the job's, and four letters.")
@click.option("--framework", help="auto, tensorflow, torch, jax or none.")
@click.option(
    "--set", "sets", multiple=True, metavar="FIELD=VALUE", help="Any field: --set limits.restarts=5."
)
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for every task.")
@click.option("-m", "--module", metavar="NAME", help="Run a module, as python -m does, instead of TARGET.")
@click.option("--cold", is_flag=True, help="Start each task afresh instead of forking it (warm: false).")
@click.option("--on", type=click.Choice(["local", "kubernetes"]), default="local", help="Where it runs.")
@click.option("--namespace", metavar="NAME", help="On Kubernetes: where. Default: the job's, the context's.")
@click.option("--context", metavar="NAME", help="On Kubernetes: which of the kubeconfig's contexts.")
@click.option("-d", "--detach", is_flag=True, help="Return at once; the run goes on.")
@click.option("-f", "--follow", is_flag=True, help="Stay until it ends: the default.")
@click.option(
    "--resume", metavar="RUN", shell_complete=run_names, help="Go on with a run that did not succeed."
)
@click.option(
    "--machines",
    type=click.IntRange(min=1),
    metavar="N",
    help="Play N machines on this one, with an agent each: to rehearse a cluster.",
)
@click.option("--dry-run", is_flag=True, help="Show what would run, and create nothing.")
@json_option("events as JSON lines, and last the final state")
def verb(
    on: str, detach: bool, follow: bool, resume: str | None, dry_run: bool, as_json: bool, **job: Any
) -> int:
    """Train: run a program, a job file or a folder.

    TARGET is a program (.py), a job file or a folder; the current folder if there is none. Options come
    before it: all that follows it, or --, goes to the program.
    """
    if on == "kubernetes" and job["machines"]:
        raise click.UsageError(
            "--machines plays machines on this one; on Kubernetes every member has its own"
        )
    if on == "local" and (job["namespace"] or job["context"]):
        raise click.UsageError("--namespace and --context go with --on kubernetes")
    if detach and follow:
        raise click.UsageError("--detach and --follow exclude each other")
    if resume is not None:
        _refuse(job, dry_run)
    if dry_run:
        from oarlock.cli import dry_run as showing

        showing.show(_load(job), job["name"], job["machines"] or 1, as_json)
        return 0
    with Interrupts() as interrupts:
        watch = _start(job, on) if resume is None else _resume(resume)
        if not detach:
            if watch.run.is_remote:
                return attached.visit(watch, interrupts, as_json, is_new=True)
            return attached.own(watch, interrupts, as_json)
    _leave(watch.run, as_json)
    return 0


def _start(job: dict[str, Any], on: str) -> Watch:
    if on == "local":
        return Watch(local.start(_load(job), job["name"], machines=job["machines"] or 1))
    from oarlock.engines.kubernetes import client

    found = _load(job)
    api = client.api_for(found.job, job["context"], job["namespace"])
    return Watch(client.start(found, job["name"], api))


def _resume(name: str) -> Watch:
    """What was seen before is not shown again."""
    watch = Watch(runs.find(name))
    watch.look()
    if watch.run.is_remote:
        from oarlock.engines.kubernetes import client

        client.resume(watch.run)
    else:
        local.resume(watch.run)
    return watch


def _refuse(job: dict[str, Any], dry_run: bool) -> None:
    given = [name for name, value in job.items() if value] + ["dry-run"] * dry_run
    if given:
        names = {"target": "TARGET", "args": "arguments", "sets": "--set", "variables": "--env"}
        first = names.get(given[0], f"--{given[0]}")
        raise click.UsageError(f"--resume goes on with the job as it was; leave out {first}")


def _leave(run: runs.RunFolder, as_json: bool) -> None:
    if as_json:
        print_json_line({"kind": "state", **shape.of_run(run, run.state())})
        return
    click.echo(run.name)
    hint(f"oarlock attach {run.name}")


def _load(job: dict[str, Any]) -> jobfile.JobFile:
    target, args = job["target"], job["args"]
    if job["module"] is not None and target is not None:
        target, args = None, (target, *args)
    overrides = {
        "roles.worker.replicas": job["workers"],
        "roles.ps.replicas": job["ps"],
        "roles.evaluator.replicas": 1 if job["evaluator"] else None,
        "framework": job["framework"],
        "module": job["module"],
        "warm": False if job["cold"] else None,
        "args": list(args) or None,
        **dict(map(_variable, job["variables"])),
    }
    return jobfile.load(target, overrides=overrides, sets=job["sets"], cwd=Path.cwd())


def _variable(written: str) -> tuple[str, str]:
    name, equals, value = written.partition("=")
    if not equals or not name:
        raise JobError(f"--env {written}: expected a name and a value, such as SEED=7")
    return f"env.{name}", value
