"""What `oarlock run --from` means: checkpoints in a run, a folder or a bucket, as the new run sees them."""

from __future__ import annotations

from pathlib import Path

from oarlock.checkpoints import initial_weights
from oarlock.checkpoints.manifest import position
from oarlock.checkpoints.store import Store
from oarlock.cli.session import find_run
from oarlock.engines.engine import Engine, engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.errors import OarlockError, UnknownRun
from oarlock.job.model import Job
from oarlock.records.run_folder import RunFolder
from oarlock.screens.output import say


def find(asked: str, engine: Engine, job: Job) -> str:
    """Return `storage.weights` for RUN, FOLDER or URL, each perhaps with @STEP. Raises OarlockError."""
    name, step = initial_weights.split(asked)
    if "://" in name:
        return asked
    folder, is_path = Path(name).absolute(), "/" in name or name in (".", "..")
    if is_path or initial_weights.holds_any(folder):
        return _at(_checked(folder, step), step)
    try:
        run = find_run.find(name)
    except UnknownRun as unknown:
        if folder.is_dir():
            _checked(folder, step)  # raises, with what the folder lacks
        raise UnknownRun(f"{unknown}; --from takes a run, a folder of checkpoints or a URL") from None
    return _at(_of_run(run, step, engine, job), step)


def _of_run(run: RunFolder, step: int | None, engine: Engine, job: Job) -> str:
    place, spec = run.folder("checkpoints"), run.spec()
    if "://" in place:
        raise OarlockError(
            f"{run.name} writes its checkpoints to {place} itself: --from takes those of oarlock.State"
        )
    is_here = traits_of(run).files_are_here
    reached = engine.checkpoints_for(job, run)
    if reached is not None and (not is_here or _has(Path(reached), step)):
        return reached
    has_own = is_here and _has(Path(place), step)
    snapshots = f"{spec.snapshots}/{spec.run}" if spec.snapshots and not has_own else ""
    if "://" in snapshots or (snapshots and is_here and _has(Path(snapshots), step)):
        return snapshots
    if is_here:
        return _checked(Path(place), step)
    say(f"copying checkpoints of {run.name}", err=True)
    pulled = engine_of(run).pull(run, "checkpoints", run.path, lambda *_: None, replaces=True)
    if "checkpoints" not in pulled.folders:
        raise OarlockError(f"{run.name} has no checkpoints yet")
    return _checked(run.path / "checkpoints", step)


def _has(folder: Path, step: int | None) -> bool:
    found = [position(name) for name in Store(folder).names()]
    return any(where is not None and step in (None, where[0]) for where in found)


def _checked(folder: Path, step: int | None) -> str:
    """Raise OarlockError now if there is nothing to start from; the agent reads every byte later."""
    if not _has(folder, step):
        found = initial_weights.choose(folder, step)
        if isinstance(found, str):
            raise OarlockError(f"there are no weights to start from: {found}")
    return str(folder)


def _at(place: str, step: int | None) -> str:
    return place if step is None else f"{place}@{step}"
