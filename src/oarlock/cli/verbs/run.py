"""`oarlock run`: start a run and, unless --detach, follow it until it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from oarlock.cli.arguments.job_options import (
    SETTINGS,
    JobCommand,
    cluster_options,
    ingest_options,
    job_options,
    load,
    misplaced,
)
from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.session import start_run
from oarlock.cli.session.relayed_input import relayed
from oarlock.engines.engine import Engine, engine_called, engine_of
from oarlock.engines.known_engines import TRAINING
from oarlock.engines.shared import specs
from oarlock.job.job_file import JobFile
from oarlock.program import imports
from oarlock.records import runs
from oarlock.screens.follow_screen import Interrupts
from oarlock.screens.output import complain

if TYPE_CHECKING:
    from oarlock.records.watch import Watch


@click.command("run", cls=JobCommand, context_settings=SETTINGS)
@job_options
@ingest_options
@click.option("--on", type=click.Choice(TRAINING), default="local", help="Where to run it.")
@cluster_options
@click.option("-d", "--detach", is_flag=True, help="Return at once; the run continues.")
@click.option("-f", "--follow", is_flag=True, help="Follow it until it ends (the default).")
@click.option("--resume", metavar="RUN", shell_complete=run_names, help="Resume a run that did not succeed.")
@click.option(
    "--from",
    "source",
    metavar="RUN[@STEP]",
    shell_complete=run_names,
    help="Start from the weights of another run: its name, a folder of checkpoints, or s3://bucket/folder.",
)
@click.option(
    "--machines",
    type=click.IntRange(min=1),
    metavar="N",
    help="Emulate N machines on this one, with one agent each.",
)
@click.option(
    "--stdin", is_flag=True, help="Let rank 0 read this terminal or pipe; the default with one task."
)
@click.option("--serve", is_flag=True, help="Then serve the model, if the score passes serve.when.")
@click.option("--dry-run", is_flag=True, help="Show what would run; create nothing.")
@json_option("events as JSON lines, then the final state")
def verb(
    on: str,
    detach: bool,
    follow: bool,
    resume: str | None,
    source: str | None,
    stdin: bool,
    serve: bool,
    dry_run: bool,
    as_json: bool,
    **job: Any,
) -> int:
    """Train: run a program, a job file or a folder.

    TARGET is a program (.py), a job file or a folder; by default the current folder. Oarlock's options come
    before it: everything after TARGET, or after --, goes to the program.
    """
    engine = engine_called(on)
    start_run.check_options(engine, job)
    if detach and stdin:
        raise click.UsageError(
            "--detach and --stdin cannot be combined: what rank 0 reads ends with this client"
        )
    if detach and follow:
        raise click.UsageError("--detach and --follow cannot be combined")
    if detach and serve:
        raise click.UsageError("--detach and --serve cannot be combined: this client waits for the model")
    if resume is not None:
        _refuse({"from": source, **job}, dry_run)
    if source is not None:
        job = _beginning_with(source, job, engine)
    if dry_run:
        from oarlock.cli.session import dry_run as showing

        jobfile = _load(job, engine)
        showing.show(engine, jobfile, job["name"], job["machines"] or 1, as_json)
        return 0
    with Interrupts() as interrupts, ExitStack() as stack:
        connect = partial(_connect, stack, stdin, detach)
        watch = _start(job, engine, connect) if resume is None else _resume(resume, connect)
        if not detach:
            from oarlock.cli.session import foreground

            code = foreground.started(watch, interrupts, as_json)
    if not detach:
        return _go_on(watch, code, as_json) if serve else code
    start_run.leave(watch.run, as_json)
    return 0


def _go_on(watch: Watch, code: int, as_json: bool) -> int:
    """Serve what was trained, unless the training failed or this client left it."""
    if watch.run.state().state != "succeeded":
        return code
    from oarlock.cli.serving_session import after_training

    return after_training.serve(engine_of(watch.run), watch.run, as_json=as_json)


def _connect(stack: ExitStack, is_asked: bool, detach: bool, engine: Engine, tasks: int) -> int | None:
    """Return the descriptor that the leader task is to read, for as long as this client follows the run."""
    can_read = "stdin" in engine.traits.options
    if is_asked and not can_read:
        raise click.UsageError(start_run.not_for("stdin", engine.name))
    return stack.enter_context(relayed(can_read and not detach and (is_asked or tasks == 1)))


def _start(job: dict[str, Any], engine: Engine, connect: Callable[[Engine, int], int | None]) -> Watch:
    jobfile = _load(job, engine)
    stdin = connect(engine, sum(specs.sizes(jobfile.job).values()))
    return start_run.send(engine, jobfile, job["name"], job["machines"], stdin)


def _beginning_with(source: str, job: dict[str, Any], engine: Engine) -> dict[str, Any]:
    """The options of the job, with the weights that it starts from."""
    from oarlock.cli.session import weights_source

    described = load(job, is_here=not engine.traits.sends_program).job
    place = json.dumps(weights_source.find(source, engine, described), ensure_ascii=False)
    return {**job, "sets": (*job["sets"], f"storage.weights={place}")}


def _load(job: dict[str, Any], engine: Engine) -> JobFile:
    jobfile = load(job, is_here=not engine.traits.sends_program)
    if ignored := engine.ignores(jobfile):
        complain(f"ignored on this machine: {', '.join(ignored)}")
    file = imports.entry(jobfile.folder, jobfile.job.program, jobfile.job.module)
    if file is not None and (job["target"] or job["module"]):
        mistake = misplaced(verb, job, file)
        if mistake:
            complain(mistake)
    return jobfile


def _resume(name: str, connect: Callable[[Engine, int], int | None]) -> Watch:
    """Resume a run; what was shown before is not shown again."""
    from oarlock.records.watch import Watch

    watch = Watch(runs.find(name))
    watch.skip()
    engine = engine_of(watch.run)
    engine.resume(watch.run, stdin=connect(engine, sum(watch.run.spec().sizes.values())))
    return watch


def _refuse(job: dict[str, Any], dry_run: bool) -> None:
    given = [name for name, value in job.items() if value] + ["dry-run"] * dry_run
    if given:
        names = {"target": "TARGET", "args": "arguments", "sets": "--set", "variables": "--env"}
        first = names.get(given[0], f"--{given[0].replace('_', '-')}")
        raise click.UsageError(f"--resume uses the job as it was; remove {first}")
