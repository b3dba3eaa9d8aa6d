"""`oarlock render`: the objects of a run as YAML, for `kubectl apply`. Asks no cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from oarlock.cli.arguments.job_options import (
    SETTINGS,
    JobCommand,
    cluster_options,
    job_options,
    load,
    run_name,
)
from oarlock.cli.arguments.options import json_option
from oarlock.engines.engine import Engine, engine_called
from oarlock.screens.output import print_document, print_json

if TYPE_CHECKING:  # loaded only for a served model
    from oarlock.engines.shared.serve_order import ServeOrder

_ENGINE = "kubernetes"  # whose objects `kubectl apply` takes


@click.command("render", cls=JobCommand, context_settings=SETTINGS)
@job_options
@cluster_options
@click.option(
    "--as",
    "form",
    type=click.Choice(["run", "deployment", "kserve"]),
    default="run",
    help="A run that trains; or a Deployment, or KServe's InferenceService, that serves the model of TARGET.",
)
@json_option("a JSON List of the objects")
def verb(as_json: bool, form: str, **given: Any) -> None:
    """Print a run, or a served model, as YAML for `kubectl apply`.

    Asks no cluster. The run supervises itself, without Oarlock on your machine. Each rendering is a new run
    with its own token. Oarlock's options come before TARGET: everything after it, or after --, goes to the
    program. With --as deployment or --as kserve, TARGET is what `oarlock serve` takes.
    """
    engine = engine_called(_ENGINE)
    if form == "run":
        jobfile = load(given, is_here=False)
        rendered = engine.render(jobfile, run_name(jobfile.job.name, given["name"]))
    else:
        rendered = engine.render_server(_order(engine, given), given["name"], form)
    if as_json:
        print_json({"apiVersion": "v1", "kind": "List", "items": rendered.objects})
    else:
        print_document(rendered.text)


def _order(engine: Engine, given: dict[str, Any]) -> ServeOrder:
    from oarlock.cli.serving_session import model_source, serve_options

    if given["args"]:
        raise click.UsageError(f"a served model takes no arguments: {' '.join(given['args'])}")
    return serve_options.order(model_source.find(given["target"], engine), engine, given)
