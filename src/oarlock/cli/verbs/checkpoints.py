"""`oarlock checkpoints`: what a run can resume from, in its folder and among its snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import click

from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.checkpoint_views import deletion, sources, table
from oarlock.cli.checkpoint_views.sources import BROKEN, FoundCheckpoints
from oarlock.cli.session.signals import leaving_in_order
from oarlock.engines.known_engines import traits_of
from oarlock.screens.output import complain, flush, hint, print_json, say
from oarlock.units import size

_ON_ITS_OWN = "local"  # a program that was started without Oarlock


@click.command("checkpoints")
@click.argument("name", metavar="[RUN|FOLDER]", required=False, shell_complete=run_names)
@click.option("--verify", "verifies", is_flag=True, help="Read every byte and check it.")
@click.option(
    "--delete",
    "doomed",
    multiple=True,
    metavar="STEP",
    help="Delete the checkpoint of STEP, or all that are `broken`; repeatable.",
)
@click.option("--snapshots", is_flag=True, help="With --delete: also delete snapshots.")
@click.option("--yes", is_flag=True, help="With --delete: do not ask for confirmation.")
@click.option("--force", is_flag=True, help="With --delete: even the newest one of a running run.")
@json_option("the checkpoints, their folder and its owner as JSON")
def verb(
    name: str | None,
    verifies: bool,
    doomed: tuple[str, ...],
    snapshots: bool,
    yes: bool,
    force: bool,
    as_json: bool,
) -> int:
    """List the checkpoints of a run; verify or delete them.

    Shows the checkpoints in the run's folder and, if its job has storage.snapshots, the snapshots there. Give
    a FOLDER for a program that was started without Oarlock. On a cluster the run's leading pod answers; after
    the run has ended, a temporary pod mounts its claim.
    """
    _check(doomed, snapshots or yes or force)
    found = sources.subject(name)
    reads = verifies or BROKEN in doomed
    with leaving_in_order(), ExitStack() as opened:
        sources.read(
            found,
            opened,
            verifies=reads,
            reads_snapshots=verifies or (reads and snapshots),
            writes=bool(doomed),
        )
        if doomed and not deletion.delete(found, doomed, snapshots=snapshots, yes=yes, force=force):
            say("nothing was deleted", err=True)
            return 1
    if as_json:
        print_json(_shape(found))
    elif doomed:
        say(f"deleted {deletion.listed(found.deleted)}: {size(found.freed)} freed")
    else:
        table.print_all(found.name, found.checkpoints, _owner(found))
    flush()
    for problem in found.problems:
        complain(str(problem))
    if not as_json:
        _hint(found, reads, bool(doomed))
    return 1 if verifies and (found.wrong or found.problems) else 0


def _check(doomed: Sequence[str], has_more: bool) -> None:
    if has_more and not doomed:
        raise click.UsageError("--snapshots, --yes and --force are for --delete STEP")
    for word in doomed:
        if word != BROKEN and not word.isdecimal():
            raise click.UsageError(f"--delete {word}: expected a step, or `{BROKEN}`")


def _owner(found: FoundCheckpoints) -> str | None:
    """The run that may add to the folder, if it is not this one."""
    if found.fence is None or found.fence[0] == (found.run.name if found.run else _ON_ITS_OWN):
        return None
    return f"only {found.fence[0]} in generation {found.fence[1]} may add to {found.folder} now"


def _hint(found: FoundCheckpoints, is_verified: bool, has_deleted: bool) -> None:
    if has_deleted:
        hint(f"oarlock checkpoints {found.name}")
    elif any(one["step"] is not None for one in found.wrong):
        hint(f"oarlock checkpoints {found.name} --delete broken")
    elif found.checkpoints and not is_verified:
        hint(f"oarlock checkpoints {found.name} --verify")
    elif found.checkpoints and found.run is not None and not traits_of(found.run).files_are_here:
        hint(f"oarlock pull {found.name} --what checkpoints")


def _shape(found: FoundCheckpoints) -> dict[str, Any]:
    fence = None if found.fence is None else {"run": found.fence[0], "generation": found.fence[1]}
    return {
        "run": found.run.name if found.run else None,
        "folder": found.folder,
        "snapshots": found.snapshots,
        "fence": fence,
        "checkpoints": found.checkpoints,
        "problem": "; ".join(found.problems) or None,
        "deleted": found.deleted,
        "freed": found.freed,
    }
