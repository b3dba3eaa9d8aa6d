"""`oarlock serve`: answer requests with a trained model."""

from __future__ import annotations

from typing import Any

import click

from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.serving_session import model_source, serve_options, until_ready
from oarlock.engines.engine import engine_called
from oarlock.engines.known_engines import TRAINING


@click.command("serve")
@click.argument("target", metavar="[RUN | FOLDER | URL]", required=False, shell_complete=run_names)
@click.option("--on", type=click.Choice(TRAINING), default="local", help="Where to serve it.")
@serve_options.serve_options
@click.option("-d", "--detach", is_flag=True, help="Return once it answers; the server continues.")
@json_option("the server's address as JSON once it answers, then events")
def verb(target: str | None, on: str, detach: bool, as_json: bool, **given: Any) -> int:
    """Serve a trained model: answer requests over HTTP.

    The model is that of a run, a folder of versions or a SavedModel, or s3://bucket/folder; by default that
    of the newest run that has one. A newer version in the same place replaces the one that is served.
    """
    engine = engine_called(on)
    source = model_source.find(target, engine)
    order = serve_options.order(source, engine, given)
    return until_ready.serve(engine, order, given["name"], detach=detach, as_json=as_json)
