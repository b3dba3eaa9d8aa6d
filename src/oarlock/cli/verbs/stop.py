"""`oarlock stop`: end a run, and wait until it has ended."""

from __future__ import annotations

import time

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.engines.local import local_engine
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.screens import json_shape
from oarlock.screens.output import hint, print_json, say

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
    run = find_run.find(name)
    was_running = end(run, now=now)
    state = run.state()
    if as_json:
        print_json(json_shape.of_run(run, state))
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
        from oarlock.engines.kubernetes import kubernetes_engine

        kubernetes_engine.stop(run, now=now, patience=grace + _CLUSTER_PATIENCE)
        return True
    local_engine.stop(run, now=now)
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
