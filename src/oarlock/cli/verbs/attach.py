"""`oarlock attach`: follow a run that was detached, or that another client started."""

from __future__ import annotations

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run, foreground
from oarlock.records.watch import Watch
from oarlock.screens.follow_screen import Interrupts


@click.command("attach")
@run_argument
@json_option("events as JSON lines, then the final state")
def verb(name: str | None, as_json: bool) -> int:
    """Follow a run that is running.

    Ctrl-C detaches; the run continues. The exit code is the run's, or 0 after Ctrl-C.
    """
    run = find_run.find(name, with_logs=True)
    with Interrupts() as interrupts:
        return foreground.visit(Watch(run), interrupts, as_json)
