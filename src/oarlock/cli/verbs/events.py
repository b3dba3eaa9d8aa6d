"""`oarlock events`: the events of a run, one per line."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.engines.engine import follow
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Watch
from oarlock.run.run_events import Event
from oarlock.screens.event_text import KINDS, describe
from oarlock.screens.follow_screen import leaving
from oarlock.screens.output import print_json_line, say


@click.command("events")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Follow until the run ends; Ctrl-C detaches.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only events of this kind; repeatable."
)
@json_option("the events as they are in the record, a JSON object per line")
def verb(name: str | None, follow: bool, kinds: tuple[str, ...], as_json: bool) -> None:
    """Print the events of a run."""
    run = find_run.find(name)
    with leaving(run):
        for event in _followed(run) if follow else run.events():
            if not kinds or event["kind"] in kinds:
                _print(event, as_json)


def _print(event: Event, as_json: bool) -> None:
    if as_json:
        print_json_line(event)
        return
    clock = time.strftime("%H:%M:%S", time.localtime(event["t"]))
    say(f"{clock}  {describe(event)}")


def _followed(run: RunFolder) -> Iterator[Event]:
    for happened, _ in follow(Watch(run)):
        yield from happened
