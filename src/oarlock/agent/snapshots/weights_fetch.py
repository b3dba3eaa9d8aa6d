"""A process that fetches the weights a new run starts with, before its first generation forms.

It exits with 0 if they are the run's checkpoint of step 0, or the run has checkpoints of its own. Weights
that another run, or an earlier one of this name, left there are replaced. It exits with 1 if it cannot get
them: then training from random weights would be silently wrong.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from oarlock.agent.snapshots.downloader import Downloader
from oarlock.agent.snapshots.snapshot_messages import Begin, Download, Failed, MissingPackage, Note
from oarlock.agent.snapshots.snapshot_process import end_with_agent, next_order, say
from oarlock.checkpoints import initial_weights
from oarlock.checkpoints.bucket import is_here
from oarlock.checkpoints.manifest import position
from oarlock.checkpoints.store import Checkpoint, Store
from oarlock.system import processes

_DRAFTS = ".saving-initial"  # removed like other drafts if this process dies


def bring(order: Begin) -> int:
    """Do the work. Returns the exit code of the process."""
    store = Store(order.checkpoints)
    held, complaints = store.newest()
    if held is None:  # the program would skip a damaged one and start from random weights
        for complaint in complaints:
            say(Note(complaint))
    else:
        origin = initial_weights.origin(held.manifest)
        if origin is None:
            say(Note(f"{order.place} {initial_weights.UNUSED} ({held.name})"))
            return 0
        if initial_weights.is_for(held.manifest, order.run, order.place):
            return 0
        say(Note(f"{held.name} had the weights of {origin}; this run starts from {order.place} instead"))
    place, step = initial_weights.split(order.place)
    drafts = store.folder / _DRAFTS
    try:
        found: Checkpoint | str | None
        if "://" in place:
            found = _downloaded(order, place, step, drafts)
        else:
            found = initial_weights.choose(Path(place), step, lambda text: say(Note(text)))
        if isinstance(found, Checkpoint):
            try:
                initial_weights.take_over(found, store, order.run, order.place)
                return 0
            except FileNotFoundError:
                if found.path.exists():
                    raise
                found = f"{found.path} was deleted while it was copied: start again, from one that is kept"
        if found is not None:
            say(Failed(f"cannot load the initial weights: {found}"))
    except OSError as error:
        say(Failed(f"the weights cannot be written to {store.folder}: {error.strerror or error}"))
    finally:
        shutil.rmtree(drafts, ignore_errors=True)
    return 1


def _downloaded(order: Begin, url: str, step: int | None, into: Path) -> Checkpoint | str | None:
    """The checkpoint, or why there is none; None if the downloader has reported that."""
    if not is_here():
        say(MissingPackage("storage.weights"))
        return None
    scheme, _, path = url.partition("://")
    bucket, *names = path.rstrip("/").split("/")
    if names and (where := position(names[-1])) is not None:  # the name is that of a checkpoint
        if step not in (None, where[0]):
            return f"{url} is the checkpoint of step {where[0]}, not of step {step}"
        step, names = where[0], names[:-1]
    name = names.pop() if names else ""  # they may be at the bucket's root
    top = f"{scheme}://{'/'.join((bucket, *names))}"
    wanted = "newest" if step is None else str(step)
    if Downloader(Download(top, name, str(into), order.patience, wanted=wanted)).work():
        return None
    found = initial_weights.choose(into, None)
    which = "" if step is None else f" of step {step}"
    return found if isinstance(found, Checkpoint) else f"{url} has no complete checkpoint{which}"


def main() -> None:
    """Take one order from standard input, work, exit. Ends with the agent, which holds the other end."""
    processes.die_with_parent()
    order = next_order()
    assert isinstance(order, Begin)
    end_with_agent()
    os._exit(bring(order))
