"""The initial weights of a new run: another run's checkpoint, adopted as the new run's step 0.

They reach every machine the way any checkpoint does, and after a restart the run's own checkpoints win
because they are newer. The manifest names the origin: a program takes only the weights out of it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from oarlock.checkpoints.manifest import FILE_NAME, FORMAT, Manifest, name_of, position, sealed
from oarlock.checkpoints.store import Checkpoint, Store, verify
from oarlock.system.atomic_file import sync_folder, write_durably

NAME = name_of(0, 0)
BEGINS = "starts from the weights of"  # part of a line that a program prints
UNUSED = "is not used: the run has checkpoints of its own"  # part of a note
_ORIGIN = "from"  # in the manifest
_AT_STEP = re.compile("(.+)@([0-9]{1,18})")
_CHUNK = 1 << 22
_SHOWN = 8  # steps in a message


def split(place: str) -> tuple[str, int | None]:
    """The folder or URL, and the step after its last @; None means the newest."""
    matched = _AT_STEP.fullmatch(place)
    return (matched[1], int(matched[2])) if matched else (place, None)


def origin(manifest: Manifest) -> str | None:
    """Where the weights come from, as text; None for the run's own checkpoints."""
    source = manifest.get(_ORIGIN)
    if not isinstance(source, dict):
        return None
    return f"{source.get('run')}, step {source.get('step')}"


def is_for(manifest: Manifest, run: str, place: str) -> bool:
    """Whether this run adopted it, and from this place: a shared folder, or the snapshots of an earlier run
    of the same name, may have the weights of another."""
    source = manifest.get(_ORIGIN)
    return manifest.get("run") == run and isinstance(source, dict) and source.get("place") == place


def holds_any(folder: Path) -> bool:
    """Whether there are checkpoints where `choose` looks for them, whole or not."""
    return _step_of_single(folder) is not None or bool(_store_in(folder).names())


def choose(
    folder: Path, step: int | None, notify: Callable[[str], None] = lambda _: None
) -> Checkpoint | str:
    """The newest whole checkpoint in a folder, or the one of a given step; or why there is none. The folder
    may be a single checkpoint, or contain `checkpoints`. `notify` gets a line for each one skipped."""
    single_step = _step_of_single(folder)
    if single_step is not None:
        if step not in (None, single_step):
            return f"{folder} is the checkpoint of step {single_step}, not of step {step}"
        single = Store.read(folder)
        trouble = single if isinstance(single, str) else verify(single)
        return single if trouble is None else f"{folder} is not whole: {trouble}"
    store = _store_in(folder)
    names = store.names()
    steps = {name: where[0] for name in names if (where := position(name))}
    wanted = [name for name in names if step is None or steps[name] == step]
    found, complaints = store.newest(wanted)
    if found is not None:
        for complaint in complaints:
            notify(f"{store.folder}: {complaint}")
        return found
    if complaints:
        return f"{store.folder}: {'; '.join(complaints)}"
    if step is None or not names:
        return f"{store.folder} has no checkpoints" if store.folder.is_dir() else f"there is no {folder}"
    there = sorted(set(steps.values()), reverse=True)
    more = ", ..." if len(there) > _SHOWN else ""
    return (
        f"{store.folder} has no checkpoint of step {step}; it has {', '.join(map(str, there[:_SHOWN]))}{more}"
    )


def take_over(source: Checkpoint, store: Store, run: str, place: str) -> None:
    """Make it the run's checkpoint of step 0. `place`: where the user said that it is. Raises OSError."""
    store.folder.mkdir(parents=True, exist_ok=True)
    draft = store.draft(0, 0)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for name in source.manifest["files"]:
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        _link(source.path / name, draft / name)
    write_durably(draft / FILE_NAME, sealed(_manifest(source, run, place)), mode=0o644)
    store.adopt(draft, NAME)
    sync_folder(store.folder)


def _step_of_single(folder: Path) -> int | None:
    """The step of a folder that is a checkpoint itself; None for any other."""
    where = position(folder.name)
    return where[0] if where and (folder / FILE_NAME).exists() else None


def _store_in(folder: Path) -> Store:
    store = Store(folder)
    return store if store.names() or not (folder / "checkpoints").is_dir() else Store(folder / "checkpoints")


def _manifest(source: Checkpoint, run: str, place: str) -> Manifest:
    """It has no timestamp: the same weights are the same snapshot."""
    before = source.manifest
    return {
        "format": FORMAT,
        "run": run,
        "generation": 0,
        "step": 0,
        "epoch": 0,
        "saved": before.get("saved"),
        "world": before.get("world"),
        "metrics": {},
        "code": {},
        "files": before["files"],
        _ORIGIN: {"run": before.get("run"), "step": source.step, "place": place},
    }


def _link(source: Path, target: Path) -> None:
    """Hard-link, as the files of a checkpoint never change; on another disk, copy."""
    try:
        os.link(source, target)
    except OSError:
        with source.open("rb") as old, target.open("wb") as new:
            shutil.copyfileobj(old, new, _CHUNK)
            new.flush()
            os.fsync(new.fileno())
