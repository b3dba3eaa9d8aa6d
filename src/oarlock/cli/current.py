"""The run that a verb looks at, with its record brought up to date where it runs on a cluster."""

from __future__ import annotations

import click

from oarlock import runs
from oarlock.errors import OarlockError


def find(name: str | None) -> runs.RunFolder:
    """By its name, the latest without one. A cluster that does not answer is said, and no more."""
    run = runs.find(name)
    _refresh(run)
    return run


def refresh_all() -> None:
    for run in runs.all_runs():
        _refresh(run)


def _refresh(run: runs.RunFolder) -> None:
    if not run.is_remote or run.state().is_over:
        return
    from oarlock.engines.kubernetes import client

    try:
        client.refresh(run)
    except OarlockError as problem:
        click.echo(f"oarlock: {problem}", err=True)
        click.echo(f"oarlock: {run.name} is shown as it was last seen", err=True)
