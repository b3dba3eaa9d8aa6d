"""`oarlock evaluate`: score checkpoints of a run once, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from oarlock.agent.protocol.spec import Spec
from oarlock.checkpoints import score_file
from oarlock.checkpoints.manifest import name_of
from oarlock.checkpoints.store import Checkpoint, Store, verify
from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.session import find_run
from oarlock.cli.session.signals import leaving_in_order
from oarlock.engines.engine import engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.errors import OarlockError
from oarlock.records import late_scores
from oarlock.records.run_folder import RunFolder
from oarlock.run.events import Event
from oarlock.screens.output import hint, print_json, print_table, say
from oarlock.screens.units import number


@click.command("evaluate")
@click.argument("name", metavar="[RUN[@STEP]]", required=False, shell_complete=run_names)
@click.option("--all", "everything", is_flag=True, help="Score every checkpoint that the run has kept.")
@json_option("the scores as JSON")
def verb(name: str | None, everything: bool, as_json: bool) -> int:
    """Score a checkpoint of a run with its evaluator, here.

    Runs the job's program in the role evaluator, on this machine, on the newest checkpoint or on that of
    STEP, and stores its scores with the run. Checkpoints of a run on a cluster are copied here first. The
    program's output goes to stderr.
    """
    asked, step = _parts(name)
    if everything and step is not None:
        raise click.UsageError("give --all or a step, not both")
    run = find_run.find(asked)
    with leaving_in_order():
        spec, folder = _here(run, step)
        checkpoints = _choose(run, folder, step, everything)
        from oarlock.engines.shared import score_once

        scores = score_once.score(spec, checkpoints)
    if not any(_metrics(score) for score in scores):
        raise OarlockError(
            f"the program reported no score of {run.name}: an evaluator loops over state.follow() "
            "and calls state.report()"
        )
    _store(run, folder, scores)
    if as_json:
        print_json({"run": run.name, "scores": [_shape(score) for score in scores]})
        return 0
    names = list(dict.fromkeys(metric for score in scores for metric in _metrics(score)))
    rows = [[str(score["step"]), *(_cell(score, metric) for metric in names)] for score in scores]
    print_table(["STEP", *(metric.upper() for metric in names)], rows)
    hint(f"oarlock status {run.name}")
    return 0


def _parts(name: str | None) -> tuple[str | None, int | None]:
    """RUN and STEP."""
    asked, at, step = (name or "").rpartition("@")
    if not at:
        return name, None
    if not step.isdecimal():
        raise click.UsageError(f"{name}: expected the number of a step after the @")
    return asked or None, int(step)


def _here(run: RunFolder, step: int | None) -> tuple[Spec, Path]:
    """What to run on this machine, and the folder with the checkpoints, which is here afterwards."""
    if traits_of(run).files_are_here:
        folder = run.folder("checkpoints")
        if "://" in folder:
            raise OarlockError(f"{run.name} writes its checkpoints to {folder} itself")
        return run.spec(), Path(folder)
    from oarlock.engines.local import local_spec
    from oarlock.engines.shared import pull_snapshots, specs

    if run.sent_from is None:
        raise OarlockError(
            f"{run.name} was sent from another machine, and its program is there: evaluate it there"
        )
    spec = local_spec.spec_for(
        specs.job_of(run.job_file.read_text(), str(run.job_file)), run.sent_from, run.path
    )
    say(f"copying checkpoints of {run.name}", err=True)
    if spec.snapshots:
        pulled = pull_snapshots.bring(
            run.spec(), ["checkpoints"], step, run.path, _quiet, replaces=True, is_ours=True
        )
    else:
        pulled = engine_of(run).pull(run, "checkpoints", run.path, _quiet, replaces=True)
    if "checkpoints" not in pulled.folders:
        raise OarlockError(f"{run.name} has no checkpoints yet")
    return spec, run.path / "checkpoints"


def _choose(run: RunFolder, folder: Path, step: int | None, everything: bool) -> list[Checkpoint]:
    """The checkpoints to score, oldest first; of two of one step the newer."""
    found = {one.step: one for one in Store(folder).checkpoints()}
    if not found:
        raise OarlockError(f"{run.name} has no checkpoints yet")
    if step is not None and step not in found:
        kept = ", ".join(map(str, sorted(found)))
        raise OarlockError(f"{run.name} has no checkpoint of step {step}; it has {kept}")
    chosen = list(found.values()) if everything else [found[max(found) if step is None else step]]
    for checkpoint in chosen:
        if (trouble := verify(checkpoint)) is not None:
            raise OarlockError(f"{checkpoint.name} of {run.name} is not whole: {trouble}")
    return chosen


def _store(run: RunFolder, folder: Path, scores: list[Event]) -> None:
    """Keep the scores with the run and, while no agent has it, where its next evaluator looks."""
    late_scores.add(run.scores_file, scores)
    if traits_of(run).files_are_here and not run.is_held():
        for score in scores:
            if "generation" in score:
                score_file.add(folder, name_of(score["step"], score["generation"]), _metrics(score))


def _quiet(count: int, total: int) -> None:
    """Show nothing: stderr is the program's."""


def _metrics(score: Event) -> dict[str, Any]:
    known = ("t", "kind", "task", "step", "generation", "busy")
    return {name: value for name, value in score.items() if name not in known}


def _cell(score: Event, metric: str) -> str:
    value = _metrics(score).get(metric)
    return "" if value is None else number(value)


def _shape(score: Event) -> dict[str, Any]:
    return {"step": score["step"], "generation": score.get("generation"), "metrics": _metrics(score)}
