"""Find the checkpoints of a run, or of a folder, wherever they are."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from oarlock.agent.protocol.spec import Spec
from oarlock.cli.session import find_run
from oarlock.engines.engine import engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.engines.shared.checkpoint_folder import FOLDER, Entry, Folder
from oarlock.engines.shared.checkpoint_place import CheckpointFolder, CheckpointPlace
from oarlock.errors import OarlockError, UnknownRun
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder

BROKEN = "broken"


@dataclass
class FoundCheckpoints:
    """The checkpoints of a run or a folder."""

    name: str  # the run's, or the folder's
    folder: str
    run: RunFolder | None = None
    spec: Spec | None = None
    fence: tuple[str, int] | None = None  # the run, and its generation, that may add to the folder
    checkpoints: list[Entry] = field(default_factory=list)  # newest first
    places: dict[str, CheckpointPlace] = field(default_factory=dict)  # by the `where` of their entries
    problems: list[str] = field(default_factory=list)  # why some are missing
    deleted: list[Entry] = field(default_factory=list)
    freed: int = 0

    @property
    def snapshots(self) -> str | None:
        """Where the run's snapshots are, if it has any."""
        return f"{self.spec.snapshots}/{self.spec.run}" if self.spec and self.spec.snapshots else None

    @property
    def is_alive(self) -> bool:
        """Whether a running run may resume from there: this one, or one that shares its folder."""
        others = [run for run in runs.all_runs() if self.fence is not None and run.name == self.fence[0]]
        return any(run.is_running() for run in ([self.run] if self.run else []) + others)

    @property
    def wrong(self) -> list[Entry]:
        """The checkpoints that are not whole, except snapshots that a run may still be uploading."""
        states = (BROKEN,) if self.is_alive else (BROKEN, "incomplete")
        return [one for one in self.checkpoints if one["state"] in states]


def subject(name: str | None) -> FoundCheckpoints:
    """Return what `name` means: a run if there is one of that name, otherwise a folder. Raises UnknownRun."""
    is_path = name is not None and ("/" in name or name in (".", ".."))
    if name is not None and Path(name).is_dir() and (is_path or not _is_run(name)):
        return FoundCheckpoints(name, str(Path(name).absolute()))
    if is_path:
        raise UnknownRun(f"there is no folder {name}")
    run = find_run.find(name)
    spec = run.spec()
    return FoundCheckpoints(run.name, run.folder("checkpoints"), run, spec)


def read(
    found: FoundCheckpoints, opened: ExitStack, *, verifies: bool, reads_snapshots: bool, writes: bool
) -> None:
    """List the checkpoints in the folder and among the snapshots.

    A folder that cannot be read is an error only if there are no snapshots; snapshots that cannot be read
    are only reported.
    """
    try:
        _read_folder(found, opened, verifies, writes)
    except OarlockError as problem:
        if found.snapshots is None:
            raise
        found.problems.append(str(problem))
    try:
        _read_snapshots(found, reads_snapshots)
    except OarlockError as problem:
        found.problems.append(str(problem))


def _read_folder(found: FoundCheckpoints, opened: ExitStack, verifies: bool, writes: bool) -> None:
    if "://" in found.folder:
        raise OarlockError(f"{found.name} writes its checkpoints to {found.folder} itself")
    folder: CheckpointFolder = (
        Folder(found.folder)
        if found.run is None
        else opened.enter_context(engine_of(found.run).checkpoints(found.run, writes=writes))
    )
    found.checkpoints += folder.entries(verifies)
    found.fence = folder.fence()
    found.places[FOLDER] = folder


def _read_snapshots(found: FoundCheckpoints, verifies: bool) -> None:
    if found.spec is None or found.snapshots is None:
        return
    is_here = found.run is None or traits_of(found.run).files_are_here
    if not is_here and "://" not in found.snapshots:
        raise OarlockError(f"the snapshots in {found.spec.snapshots} are in a folder of its pods, not here")
    from oarlock.engines.shared.snapshot_store import Snapshots

    kept = Snapshots(found.spec, is_ours=found.run is None or found.run.is_from_here)
    found.checkpoints += kept.entries(verifies)
    found.places[found.snapshots] = kept
    # A checkpoint in the folder stays before its snapshot. Models come last.
    found.checkpoints.sort(key=_age, reverse=True)


def _age(one: Entry) -> tuple[int, int]:
    return (-1, -1) if one["step"] is None else (one["step"], one["generation"])


def _is_run(name: str) -> bool:
    try:
        runs.find(name)
    except UnknownRun:
        return False
    return True
