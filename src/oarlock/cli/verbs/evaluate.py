"""`oarlock evaluate`: score checkpoints of a run once, here or on its cluster."""

from __future__ import annotations

import sys
from typing import Any

import click

from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.session import find_run
from oarlock.cli.session.signals import leaving_in_order
from oarlock.engines.engine import engine_called
from oarlock.engines.known_engines import TRAINING
from oarlock.errors import OarlockError
from oarlock.records import late_scores
from oarlock.run.best_scores import metrics_of
from oarlock.run.run_events import Event
from oarlock.screens.output import hint, print_json, print_table, say
from oarlock.units import number


@click.command("evaluate")
@click.argument("name", metavar="[RUN[@STEP]]", required=False, shell_complete=run_names)
@click.option("--all", "everything", is_flag=True, help="Score every checkpoint that the run has kept.")
@click.option("--on", type=click.Choice(TRAINING), default="local", help="Where to score it.")
@json_option("the scores as JSON")
def verb(name: str | None, everything: bool, on: str, as_json: bool) -> int:
    """Score a checkpoint of a run with its evaluator.

    Runs the job's program in the role evaluator on the newest checkpoint or on that of STEP, and stores its
    scores with the run. That happens on this machine, to which checkpoints of a run on a cluster are copied
    first; with --on kubernetes, in a pod beside the run's claim. The program's output goes to stderr.
    """
    asked, step = _parts(name)
    if everything and step is not None:
        raise click.UsageError("give --all or a step, not both")
    run = find_run.find(asked)
    with leaving_in_order():
        scores = engine_called(on).evaluate(
            run,
            step,
            everything=everything,
            output=sys.stderr.buffer,
            notify=lambda text: say(text, err=True),
        )
    if not any(map(metrics_of, scores)):
        raise OarlockError(
            f"the program reported no score of {run.name}: an evaluator loops over state.follow() "
            "and calls state.report()"
        )
    late_scores.add(run.scores_file, scores)
    if as_json:
        print_json({"run": run.name, "scores": [_shape(score) for score in scores]})
        return 0
    names = list(dict.fromkeys(metric for score in scores for metric in metrics_of(score)))
    rows = [[str(score["step"]), *(_cell(score, metric) for metric in names)] for score in scores]
    print_table(["STEP", *(metric.upper() for metric in names)], rows)
    hint(f"oarlock status {run.name}")
    return 0


def _parts(name: str | None) -> tuple[str | None, int | None]:
    """Split RUN@STEP into the run and the step."""
    asked, at, step = (name or "").rpartition("@")
    if not at:
        return name, None
    if not step.isdecimal():
        raise click.UsageError(f"{name}: expected the number of a step after the @")
    return asked or None, int(step)


def _cell(score: Event, metric: str) -> str:
    value = metrics_of(score).get(metric)
    return "" if value is None else number(value)


def _shape(score: Event) -> dict[str, Any]:
    return {"step": score["step"], "generation": score.get("generation"), "metrics": metrics_of(score)}
