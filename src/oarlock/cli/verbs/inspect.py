"""`oarlock inspect`: a shell beside the files of a run."""

from __future__ import annotations

import click

from oarlock.cli.arguments.command_words import MayHaveCommand
from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.cli.session.signals import leaving_in_order
from oarlock.cli.session.streams import is_on_terminal, print_captured, streams
from oarlock.engines.engine import engine_of
from oarlock.screens.output import say


@click.command("inspect", cls=MayHaveCommand)
@run_argument
@click.option("--write", is_flag=True, help="On a cluster: mount the claim writable.")
@click.option("--image", metavar="IMAGE", help="On a cluster: the shell's image. Default: the leader's.")
@json_option("exit code, stdout and stderr of COMMAND as JSON")
def verb(name: str | None, write: bool, image: str | None, as_json: bool, words: tuple[str, ...]) -> int:
    """Open a shell, or run a command, beside the files of a run.

    The run may be running or have ended. On a cluster, a small pod on the leader's node mounts the run's
    claim read-only until the shell ends; the run is not disturbed.
    """
    if as_json and not words:
        raise click.UsageError("--json is for a COMMAND: oarlock inspect [RUN] --json -- ls checkpoints")
    run = find_run.recorded(name)

    def notify(where: str) -> None:
        if is_on_terminal() and not words:
            say(f"{where}; `exit` ends the shell", err=True)

    with leaving_in_order():
        used = streams(as_json=as_json, reads_terminal=not words)
        code = engine_of(run).inspect(run, words, used, image=image, writes=write, notify=notify)
    print_captured(code, used)
    return code
