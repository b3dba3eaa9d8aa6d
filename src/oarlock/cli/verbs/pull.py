"""`oarlock pull`: copy the files of a run on a cluster to this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.cli.session.signals import leaving_in_order
from oarlock.engines.engine import engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.records.run_folder import RunFolder
from oarlock.screens import json_shape
from oarlock.screens.output import hint, print_json, redraw, say
from oarlock.units import duration, plural, size

if TYPE_CHECKING:
    from oarlock.engines.shared.pull_result import Pulled

_WHAT = ("model", "checkpoints", "logs", "files", "data", "all")
_INTERVAL = 0.2  # seconds between two updates of the progress line


@click.command("pull")
@run_argument
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="The destination. Default: the run's record on this machine.",
)
@click.option(
    "--what",
    type=click.Choice(_WHAT),
    help="Default: the model, the leader's record, and the files that the program wrote beside itself.",
)
@click.option("--snapshots", is_flag=True, help="Copy from its snapshots: model or checkpoints.")
@click.option(
    "--step", type=click.IntRange(0), metavar="N", help="With --snapshots: the checkpoint of step N."
)
@click.option("--force", is_flag=True, help="Replace folders that are in FOLDER already.")
@json_option("what was copied, and where it is, as JSON")
def verb(
    name: str | None,
    folder: Path | None,
    what: str | None,
    snapshots: bool,
    step: int | None,
    force: bool,
    as_json: bool,
) -> int:
    """Copy the model and other files of a run to this machine.

    The run may still be running. After it has ended, a temporary pod mounts its claim. Nothing is put into
    place before all of it has arrived. With --snapshots, copies the newest complete snapshot of any run from
    its bucket.
    """
    if step is not None and not snapshots:
        raise click.UsageError("--step is for --snapshots")
    run = find_run.find(name)
    if traits_of(run).files_are_here and not snapshots:
        return _tell_local(run, as_json)
    to = folder.absolute() if folder else run.path / "snapshots" if snapshots else run.path
    started = time.monotonic()
    with leaving_in_order(), _Progress("asking the bucket" if snapshots else "waiting for a pod") as progress:
        fetch = _from_snapshots if snapshots else _from_engine
        pulled = fetch(run, what, step, to, progress, force or folder is None)
    seconds = time.monotonic() - started
    if what is None:  # most programs write none, and the user has not asked for them
        pulled.absent = [kind for kind in pulled.absent if kind != "files"]
    is_empty = (what is not None or snapshots) and not pulled.folders
    if as_json:
        print_json(_shape(run.name, to, pulled, seconds))
    else:
        _print(run.name, pulled, seconds)
    return 1 if is_empty else 0


def _from_engine(
    run: RunFolder, what: str | None, _: int | None, to: Path, progress: _Progress, replaces: bool
) -> Pulled:
    return engine_of(run).pull(run, what, to, progress.show, replaces=replaces)


def _from_snapshots(
    run: RunFolder, what: str | None, step: int | None, to: Path, progress: _Progress, replaces: bool
) -> Pulled:
    from oarlock.engines.shared import pull_snapshots

    if what not in (None, "all", *pull_snapshots.KINDS):
        raise click.UsageError(f"there are snapshots of checkpoints and the model, not of {what}")
    names = pull_snapshots.KINDS if what == "all" else (what or ("model" if step is None else "checkpoints"),)
    if step is not None and "checkpoints" not in names:
        raise click.UsageError("--step is for --what checkpoints")
    spec = run.spec()
    return pull_snapshots.bring(
        spec, names, step, to, progress.show, replaces=replaces, is_ours=run.is_from_here
    )


def _tell_local(run: RunFolder, as_json: bool) -> int:
    folders = json_shape.folders(run)
    if as_json:
        kept = {kind: folders[kind] for kind in ("model", "checkpoints", "logs", "data") if kind in folders}
        fields = {
            "run": run.name,
            "folder": str(run.path),
            "from": None,
            "folders": kept,
            "files": 0,
            "bytes": 0,
        }
        print_json({**fields, "seconds": 0.0, "absent": [], "elsewhere": {}, "changed": [], "skipped": []})
        return 0
    say(f"{run.name} ran on this machine: its model is already here, in {folders.get('model', run.path)}")
    return 0


def _shape(name: str, to: Path, pulled: Pulled, seconds: float) -> dict[str, Any]:
    return {
        "run": name,
        "folder": str(to),
        "from": pulled.source or None,
        "folders": {kind: str(path) for kind, path in pulled.folders.items()},
        "files": pulled.files,
        "bytes": pulled.size,
        "seconds": round(seconds, 3),
        "absent": pulled.absent,
        "elsewhere": pulled.elsewhere,
        "changed": pulled.changed,
        "skipped": pulled.skipped,
    }


def _print(name: str, pulled: Pulled, seconds: float) -> None:
    for kind, path in pulled.folders.items():
        say(f"{kind:<12} {path}")
    for kind, address in pulled.elsewhere.items():
        say(f"{kind:<12} is at {address}, not on the cluster")
    for kind in pulled.absent:
        say(f"{kind:<12} nothing: {name} has not written any")
    _print_names("changed while it was read", pulled.changed)
    _print_names("is a link to a file that was not copied", pulled.skipped)
    if pulled.source:
        what = f"{plural(pulled.files, 'file')}, {size(pulled.size)}"
        source = pulled.source if "/" in pulled.source else f"pod {pulled.source}"
        say(f"{what} in {duration(seconds)}, from {source}")
    if pulled.changed:
        hint(f"oarlock pull {name}")


def _print_names(what: str, names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        say(f"{', '.join(names[:3])}{more}: {what}")


class _Progress:
    """One line of progress on stderr, if that is a terminal."""

    def __init__(self, at_first: str) -> None:
        self._at_first = at_first
        self._is_seen = sys.stderr.isatty()
        self._next = 0.0
        self._width = 0

    def __enter__(self) -> _Progress:
        if self._is_seen:
            self._write(self._at_first)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_seen:
            self._write("")
            redraw("", 0)

    def show(self, count: int, total: int) -> None:
        if not self._is_seen or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL
        self._write(f"{size(count)} of {size(total)}" if total else size(count))

    def _write(self, text: str) -> None:
        redraw(text, self._width)
        self._width = len(text)
