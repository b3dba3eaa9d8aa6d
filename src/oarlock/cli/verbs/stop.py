"""`oarlock stop`: end a run, and wait until it has ended."""

from __future__ import annotations

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.engines.engine import engine_of
from oarlock.screens import json_shape
from oarlock.screens.output import hint, print_json, say


@click.command("stop")
@run_argument
@click.option("--now", is_flag=True, help="Kill its tasks at once, without their grace.")
@json_option("the final state as JSON")
def verb(name: str | None, now: bool, as_json: bool) -> None:
    """Stop a run: ask its tasks to end, then kill them.

    Returns when the run has ended. Stopping a run that has ended changes nothing.
    """
    run = find_run.find(name)
    was_running = run.is_running()
    if was_running:
        if not now:
            say(f"stopping {run.name}: its tasks have {run.grace():g} s to end", err=True)
        engine_of(run).stop(run, now=now)
    state = run.state()
    if as_json:
        print_json(json_shape.of_run(run, state))
        return
    say(f"{run.name} {state.state}" if was_running else f"{run.name} has already ended: {state.state}")
    hint(f"oarlock run --resume {run.name}" if state.state != "succeeded" else f"oarlock logs {run.name}")
