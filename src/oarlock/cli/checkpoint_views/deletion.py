"""Delete checkpoints after confirmation, but not the one that a running run would resume from."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.cli.checkpoint_views.sources import BROKEN, FoundCheckpoints
from oarlock.engines.shared.checkpoint_folder import FOLDER, Entry
from oarlock.errors import OarlockError
from oarlock.screens.output import confirm
from oarlock.units import plural, size


def delete(
    found: FoundCheckpoints, doomed: Sequence[str], *, snapshots: bool, yes: bool, force: bool
) -> bool:
    """Delete the checkpoints of these steps, or those that are `broken`; return False if the user says no.

    Raises OarlockError if a checkpoint does not exist or is protected.
    """
    if found.problems and (snapshots or FOLDER not in found.places):
        raise OarlockError(f"{found.problems[0]}; nothing was deleted")
    within = [
        one for one in found.checkpoints if one["step"] is not None and (snapshots or one["where"] == FOLDER)
    ]
    chosen = [one for one in found.wrong if one in within] if BROKEN in doomed else []
    for word in doomed:
        if word != BROKEN:
            chosen += [one for one in _of_step(found, within, int(word)) if one not in chosen]
    if not chosen:
        return True
    if not force and found.is_alive:
        _protect(found, chosen)
    if not yes and not confirm(f"delete {listed(chosen)} of {found.name}?"):
        return False
    for where, place in found.places.items():
        found.freed += place.delete([one["name"] for one in chosen if one["where"] == where])
    found.deleted = [one for one in found.checkpoints if one in chosen]
    found.checkpoints = [one for one in found.checkpoints if one not in chosen]
    return True


def listed(chosen: Sequence[Entry]) -> str:
    """Return the steps and the total size of checkpoints."""
    if not chosen:
        return "nothing"
    names = list(dict.fromkeys(f"step {one['step']} of generation {one['generation']}" for one in chosen))
    some = ", ".join(names[:5]) + (f" and {plural(len(names) - 5, 'other')}" if len(names) > 5 else "")
    kept = sum(one["where"] != FOLDER for one in chosen)
    where = f", {plural(kept, 'snapshot')} among them" if kept else ""
    return f"{some} ({size(sum(one['size'] for one in chosen))}{where})"


def _of_step(found: FoundCheckpoints, within: Sequence[Entry], step: int) -> list[Entry]:
    matching = [one for one in within if one["step"] == step]
    if not matching:
        is_kept = any(one["step"] == step for one in found.checkpoints)
        more = ", only a snapshot, which --snapshots deletes" if is_kept else ""
        raise OarlockError(f"there is no checkpoint of step {step} in {found.folder}{more}")
    return matching


def _protect(found: FoundCheckpoints, chosen: Sequence[Entry]) -> None:
    for where, place in found.places.items():
        newest = place.newest()
        if any(one["name"] == newest and one["where"] == where for one in chosen):
            why = "is the newest whole checkpoint, and a run that is running may resume from it"
            raise OarlockError(
                f"{newest} in {found.folder if where == FOLDER else where} {why}; --force deletes it"
            )
