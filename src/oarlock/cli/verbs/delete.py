"""`oarlock delete`: runs and everything they kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.session import find_run
from oarlock.engines.engine import engine_called, engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.errors import OarlockError, UnknownRun
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.screens.output import hint, print_json, say
from oarlock.units import plural, size


@click.command("delete")
@click.argument("names", nargs=-1, metavar="[RUN]...", shell_complete=run_names)
@click.option("--finished", is_flag=True, help="Every run that has ended.")
@click.option("--force", is_flag=True, help="Kill runs that are running first.")
@click.option("--volumes", is_flag=True, help="On a cluster: also the claims that Oarlock made for its job.")
@click.option("--record", is_flag=True, help="Only the record on this machine; no cluster is asked.")
@json_option("a JSON array of run and freed, in bytes")
def verb(
    names: tuple[str, ...], finished: bool, force: bool, volumes: bool, record: bool, as_json: bool
) -> None:
    """Delete runs and everything they kept.

    Deletes records, logs, and checkpoints and models in the run's own folder, but never folders that the job
    names. On Kubernetes it also deletes every object of the run, and its `tensorboard --deploy`, and waits
    until they are gone; claims stay unless you give --volumes.
    """
    if not names and not finished:
        raise click.UsageError("which run? Give its name, or --finished for all that have ended")
    if record and volumes:
        raise click.UsageError("--record does not touch the cluster, but --volumes does: give one of them")
    chosen = [_find(name, record) for name in names]
    if finished:
        chosen += [run for run in runs.all_runs() if not run.is_running()]
    chosen = list(dict.fromkeys(chosen))
    kept, boards = _delete_outside(_with_more_than_a_record(chosen) if record else chosen, force, volumes)
    if boards and not as_json:
        say(f"deleted the TensorBoard of {', '.join(boards)}", err=True)
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


def _find(name: str, record: bool) -> RunFolder:
    """Find a run by its whole name: a deletion cannot be undone."""
    run = runs.find(name) if record else find_run.find(name)
    if run.name != name:
        raise UnknownRun(f"there is no run called {name}; did you mean {run.name}?")
    return run


def _with_more_than_a_record(chosen: Sequence[RunFolder]) -> list[RunFolder]:
    """The runs on this machine: their processes need the record."""
    return [run for run in chosen if traits_of(run).files_are_here]


def _delete_outside(chosen: Sequence[RunFolder], force: bool, volumes: bool) -> tuple[list[str], list[str]]:
    """Delete what is not in the records, for all runs or for none.

    Returns the names of claims that stay, and of runs whose TensorBoard stood and is gone.
    """
    running = [run for run in chosen if run.is_running()]
    if running and not force:
        name = running[0].name
        raise OarlockError(
            f"{name} is running; `oarlock stop {name}` stops it, --force kills it and deletes it"
        )
    boards = [run.name for run in chosen if engine_of(run).find_board(run)]
    kept: list[str] = []
    for engine in dict.fromkeys(run.engine for run in chosen):
        group = [run for run in chosen if run.engine == engine]
        kept += engine_called(engine).delete(group, now=force, volumes=volumes)
    return kept, boards


def _delete(run: RunFolder) -> int:
    freed = sum(_bytes(path) for path in run.path.rglob("*"))
    run.delete()
    return freed


def _bytes(path: Path) -> int:
    """The space on disk: a sparse checkpoint takes less than its length."""
    try:
        stat = path.lstat()
    except OSError:
        return 0
    return stat.st_blocks * 512 if not path.is_dir() else 0
