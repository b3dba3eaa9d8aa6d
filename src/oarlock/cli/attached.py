"""The client's side of an attached run: the right screen, Ctrl-C to the run, the last lines, the exit code."""

from __future__ import annotations

import click

from oarlock.cli import ending
from oarlock.cli.following import Interrupts, Screen, until_end
from oarlock.cli.output import flush, hint
from oarlock.cli.plain import Plain
from oarlock.cli.telling import exit_code
from oarlock.engines import local
from oarlock.watch import Watch


def stay(watch: Watch, interrupts: Interrupts, as_json: bool) -> int:
    run = watch.run
    screen: Screen = Plain()

    def on_interrupt(count: int) -> None:
        if count == 1:
            screen.say(f"stopping {run.name} (Ctrl-C again to kill)")
        local.stop(run, now=count > 1)

    state = until_end(watch, screen, on_interrupt, interrupts)
    flush()
    for line in ending.lines(run, state):
        click.echo(line, err=state.state != "succeeded")
    hint(ending.next_command(run, state))
    return exit_code(state)
