"""`oarlock stop`: end a run, and wait until it has ended."""

from __future__ import annotations

import time

import click

from oarlock import runs
from oarlock.cli import current, shape
from oarlock.cli.options import json_option, run_argument
from oarlock.cli.output import hint, print_json, say
from oarlock.engines import local
from oarlock.errors import OarlockError

_CLUSTER_PATIENCE = 60.0  # pods take a while to go
_PATIENCE = 15.0  # seconds beyond the grace; a kill needs far less


@click.command("stop")
@run_argument
@click.option("--now", is_flag=True, help="Kill its tasks at once, without the grace.")
@json_option("the final state as JSON")
def verb(name: str | None, now: bool, as_json: bool) -> None:
    """End a run: ask its tasks to leave, then kill them.

    Returns when it has ended. A run that has ended already is left as it is.
    """
    run = current.find(name)
    was_running = end(run, now=now)
    state = run.state()
    if as_json:
        print_json(shape.of_run(run, state))
        return
    say(f"{run.name} {state.state}" if was_running else f"{run.name} has already ended: {state.state}")
    hint(f"oarlock run --resume {run.name}" if state.state != "succeeded" else f"oarlock logs {run.name}")


def end(run: runs.RunFolder, *, now: bool) -> bool:
    """Whether it was running. Raises if it does not end in time."""
    if not run.is_running():
        return False
    grace = 0.0 if now else _grace(run)
    if not now:
        say(f"stopping {run.name}: its tasks have {grace:g} s to leave", err=True)
    if run.is_remote:
        from oarlock.engines.kubernetes import client

        client.stop(run, now=now, patience=grace + _CLUSTER_PATIENCE)
        return True
    local.stop(run, now=now)
    deadline = time.monotonic() + grace + _PATIENCE
    while run.is_held():
        if time.monotonic() > deadline:
            more = "" if now else f"; `oarlock stop --now {run.name}` kills it"
            raise OarlockError(f"{run.name} has not ended after {grace + _PATIENCE:g} s{more}")
        time.sleep(0.02)
    return True


def _grace(run: runs.RunFolder) -> float:
    try:
        return run.spec().limits.grace
    except (OSError, OarlockError):
        return 30.0
