"""`oarlock run`: start a run and, unless it is detached, stand beside it until it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from oarlock.cli.arguments.job_options import (
    SETTINGS,
    JobCommand,
    cluster_options,
    job_options,
    load,
    misplaced,
)
from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.session import attached
from oarlock.engines.local import local_engine
from oarlock.job.job_file import JobFile
from oarlock.records import runs
from oarlock.records.watch import Watch
from oarlock.screens import json_shape, travel_text
from oarlock.screens.follow_screen import Interrupts
from oarlock.screens.output import complain, hint, print_json_line, say

if TYPE_CHECKING:
    from oarlock.engines.kubernetes.manifests.payload import Parcel


@click.command("run", cls=JobCommand, context_settings=SETTINGS)
@job_options
@click.option("--on", type=click.Choice(["local", "kubernetes"]), default="local", help="Where it runs.")
@cluster_options
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
        from oarlock.cli.session import dry_run as showing

        jobfile = _load(job, on)
        showing.show(jobfile, job["name"], job["machines"] or 1, as_json, travels=on == "kubernetes")
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
    jobfile = _load(job, on)
    if on == "local":
        return Watch(local_engine.start(jobfile, job["name"], machines=job["machines"] or 1))
    from oarlock.engines.kubernetes import kubernetes_engine

    told: list[str] = []  # once, though a name that was taken has it packed again

    def tell(parcel: Parcel) -> None:
        lines = travel_text.lines(jobfile.folder, parcel.files, parcel.size, parcel.withheld)
        for line in lines if not told else []:
            complain(line)
        told.extend(lines)

    return Watch(kubernetes_engine.start(jobfile, job["name"], kubernetes_engine.api_for(jobfile.job), tell))


def _load(job: dict[str, Any], on: str) -> JobFile:
    jobfile = load(job, is_here=on == "local")
    if job["target"] and jobfile.job.program:
        mistake = misplaced(verb, job, jobfile.folder / jobfile.job.program)
        if mistake:
            complain(mistake)
    return jobfile


def _resume(name: str) -> Watch:
    """What was seen before is not shown again."""
    watch = Watch(runs.find(name))
    watch.skip()
    if watch.run.is_remote:
        from oarlock.engines.kubernetes import kubernetes_engine

        kubernetes_engine.resume(watch.run)
    else:
        local_engine.resume(watch.run)
    return watch


def _refuse(job: dict[str, Any], dry_run: bool) -> None:
    given = [name for name, value in job.items() if value] + ["dry-run"] * dry_run
    if given:
        names = {"target": "TARGET", "args": "arguments", "sets": "--set", "variables": "--env"}
        first = names.get(given[0], f"--{given[0]}")
        raise click.UsageError(f"--resume goes on with the job as it was; leave out {first}")


def _leave(run: runs.RunFolder, as_json: bool) -> None:
    if as_json:
        print_json_line({"kind": "state", **json_shape.of_run(run, run.state())})
        return
    say(run.name)
    hint(f"oarlock attach {run.name}")
