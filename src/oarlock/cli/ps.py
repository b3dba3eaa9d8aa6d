"""`oarlock ps`: the runs of this machine, from their records."""

from __future__ import annotations

import time

import click

from oarlock import runs
from oarlock.cli import shape, telling
from oarlock.cli.options import json_option
from oarlock.cli.output import duration, hint, number, plural, print_json, print_table
from oarlock.events import RunState

_LATEST = 20
_HEADER = (
    *("RUN", "STATE", "GENERATION", "RESTARTS", "TASKS"),
    *("STEP", "RATE", "LOSS", "GOODPUT", "AGE", "DURATION"),
)


@click.command("ps")
@click.option("-a", "--all", "everything", is_flag=True, help=f"All of them, not only the latest {_LATEST}.")
@json_option("a JSON array, each run as `status --json` gives it")
def verb(everything: bool, as_json: bool) -> None:
    """List runs, newest first."""
    found = runs.all_runs()
    shown = found if everything else found[:_LATEST]
    known = [(run, state) for run in shown if (state := _state(run))]
    if as_json:
        print_json([shape.of_run(run, state) for run, state in known])
        return
    if not found:
        click.echo("no runs yet")
        hint("oarlock run train.py")
        return
    print_table(_HEADER, [_row(state) for _, state in known])
    if len(shown) < len(found):
        hint(f"oarlock ps --all  # {plural(len(found) - len(shown), 'older run')}")


def _state(run: runs.RunFolder) -> RunState | None:
    try:
        return run.state()
    except OSError:
        return None  # deleted between the listing and the look


def _row(state: RunState) -> tuple[str, ...]:
    now, leader = time.time(), state.leader
    created = state.created or now
    loss = leader.metrics.get("loss") if leader else None
    return (
        state.run,
        state.state,
        str(state.generation),
        str(state.restarts),
        str(len(state.tasks)),
        telling.steps(leader) if leader else "",
        telling.rate(leader) if leader and leader.state == "running" and state.state == "running" else "",
        "" if loss is None else number(loss),
        telling.goodput(shape.spent(state)),
        duration(now - created),
        duration((_end(state) or now) - created),
    )


def _end(state: RunState) -> float | None:
    """A lost run ended when it was last heard of."""
    return state.updated if state.state == "lost" else state.ended
