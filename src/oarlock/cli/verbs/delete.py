"""`oarlock delete`: runs and all that they kept."""

from __future__ import annotations

from pathlib import Path

import click

from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.session import find_run
from oarlock.errors import OarlockError, UnknownRun
from oarlock.records import runs
from oarlock.screens.output import hint, print_json, say
from oarlock.screens.units import plural, size


@click.command("delete")
@click.argument("names", nargs=-1, metavar="[RUN]...", shell_complete=run_names)
@click.option("--finished", is_flag=True, help="Every run that has ended.")
@click.option("--force", is_flag=True, help="Kill those that are running first.")
@click.option("--volumes", is_flag=True, help="On Kubernetes: the claims that Oarlock made for its job, too.")
@click.option("--record", is_flag=True, help="Only the record here; a cluster is not asked.")
@json_option("a JSON array of run and freed, in bytes")
def verb(
    names: tuple[str, ...], finished: bool, force: bool, volumes: bool, record: bool, as_json: bool
) -> None:
    """Delete runs and everything they kept.

    Records, logs, checkpoints and models in the run's own folder; never folders that the job names. On
    Kubernetes every object of the run, and it returns when they are gone; claims stay without --volumes.
    """
    if not names and not finished:
        raise click.UsageError("which run? Give its name, or --finished for all that have ended")
    if record and volumes:
        raise click.UsageError("--record leaves the cluster alone, and --volumes does not: give one of them")
    chosen = [_find(name, record) for name in names]
    if finished:
        chosen += [run for run in runs.all_runs() if not run.is_running()]
    chosen = list(dict.fromkeys(chosen))
    _end([run for run in chosen if not (record and run.is_remote)], force)
    remote = [run for run in chosen if run.is_remote]
    if remote and not record:
        from oarlock.engines.kubernetes import kubernetes_engine

        kept = kubernetes_engine.delete(remote, now=force, volumes=volumes)
        if kept and not as_json:
            say(f"kept: claim {', '.join(kept)}; `kubectl delete pvc {' '.join(kept)}` deletes it", err=True)
    freed = {run.name: _delete(run) for run in chosen}
    if as_json:
        print_json([{"run": name, "freed": count} for name, count in freed.items()])
        return
    total = sum(freed.values())
    what = chosen[0].name if len(chosen) == 1 else plural(len(chosen), "run")
    say(f"deleted {what}: {size(total)} freed" if chosen else "there was nothing to delete")
    hint("oarlock ps")


def _find(name: str, record: bool) -> runs.RunFolder:
    """The whole name: what is gone is gone."""
    run = runs.find(name) if record else find_run.find(name)
    if run.name != name:
        raise UnknownRun(f"there is no run called {name}; did you mean {run.name}?")
    return run


def _end(chosen: list[runs.RunFolder], force: bool) -> None:
    """All or nothing: one that runs keeps the others too."""
    running = [run for run in chosen if run.is_running()]
    if running and not force:
        name = running[0].name
        raise OarlockError(f"{name} is running; `oarlock stop {name}` ends it, --force kills and deletes it")
    for run in running:
        if run.is_remote:
            continue  # deleting its objects ends it
        from oarlock.cli.verbs.stop import end

        end(run, now=True)


def _delete(run: runs.RunFolder) -> int:
    freed = sum(_bytes(path) for path in run.path.rglob("*"))
    run.delete()
    return freed


def _bytes(path: Path) -> int:
    """What it takes on disk: a sparse checkpoint is smaller than it says."""
    try:
        stat = path.lstat()
    except OSError:
        return 0
    return stat.st_blocks * 512 if not path.is_dir() else 0
