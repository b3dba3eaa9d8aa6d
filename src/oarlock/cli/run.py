"""`oarlock run`: start a run and, unless it is detached, stand beside it until it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from oarlock import jobfile, runs
from oarlock.cli import attached
from oarlock.cli.following import Interrupts
from oarlock.cli.options import json_option, run_names
from oarlock.engines import local
from oarlock.errors import JobError
from oarlock.watch import Watch


class _Run(click.Command):
    """Options of ours come before TARGET; all that follows it, or `--`, is the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, theirs = args, None
        if "--" in args:
            at = args.index("--")
            ours, theirs = args[:at], args[at + 1 :]
        rest = super().parse_args(ctx, ours)
        if theirs is not None:
            # `train.py a -- b`: what is behind the first argument is the program's, dashes included.
            own = ctx.params["args"]
            ctx.params["args"] = (*own, "--", *theirs) if own else tuple(theirs)
        return rest


@click.command("run", cls=_Run, context_settings={"allow_interspersed_args": False})
@click.argument("target", required=False, type=click.Path())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "--workers", metavar="N", help="How many workers: a number, or min..max.")
@click.option("--ps", metavar="N", help="How many parameter servers.")
@click.option("--evaluator", is_flag=True, help="Add an evaluator.")
@click.option("--name", help="The run's name. Default: the job's, and four letters.")
@click.option("--framework", help="auto, tensorflow, torch, jax or none.")
@click.option("--set", "sets", multiple=True, metavar="FIELD=VALUE", help="Any field: --set limits.restarts=5.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for every task.")
@click.option("-m", "--module", metavar="NAME", help="Run a module, as python -m does; there is no TARGET then.")
@click.option("--cold", is_flag=True, help="Start each task afresh instead of forking it (warm: false).")
@click.option("--on", type=click.Choice(["local", "kubernetes"]), default="local", help="Where it runs.")
@click.option("-d", "--detach", is_flag=True, help="Return at once; the run goes on.")
@click.option("-f", "--follow", is_flag=True, help="Stay until it ends: the default.")
@click.option("--resume", metavar="RUN", shell_complete=run_names, help="Go on with a run that did not succeed.")
@click.option("--dry-run", is_flag=True, help="Show what would run, and create nothing.")
@json_option("events as JSON lines, and last the final state")
def verb(**given: Any) -> int:
    """Train: run a program, a job file or a folder.

    TARGET is a program (.py), a job file or a folder; the current folder if there is none. Options come
    before it: all that follows it, or --, goes to the program.
    """
    if given["detach"] and given["follow"]:
        raise click.UsageError("--detach and --follow exclude each other")
    with Interrupts() as interrupts:
        run = local.start(_job(given), given["name"])
        return attached.stay(Watch(run), interrupts, given["as_json"])


def _job(given: dict[str, Any]) -> jobfile.JobFile:
    overrides = {
        "roles.worker.replicas": given["workers"],
        "roles.ps.replicas": given["ps"],
        "framework": given["framework"],
        "module": given["module"],
        "warm": False if given["cold"] else None,
        "args": list(given["args"]) or None,
    }
    return jobfile.load(given["target"], overrides=overrides, sets=given["sets"], cwd=Path.cwd())
