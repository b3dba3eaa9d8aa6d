"""`oarlock render`: the objects of a run as YAML, for `kubectl apply`. Asks no cluster."""

from __future__ import annotations

from typing import Any

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
from oarlock.screens.output import print_document, print_json


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
    if form != "run":
        _print_server(form, as_json, given)
        return
    from oarlock.engines.kubernetes.manifests import yaml_file

    jobfile = load(given, is_here=False)
    rendered = yaml_file.render(jobfile, run_name(jobfile.job.name, given["name"]))
    if as_json:
        print_json({"apiVersion": "v1", "kind": "List", "items": rendered.objects})
    else:
        print_document(yaml_file.to_yaml(rendered))


def _print_server(form: str, as_json: bool, given: dict[str, Any]) -> None:
    from oarlock.cli.serving_session import model_source, serve_options
    from oarlock.engines.engine import engine_called
    from oarlock.engines.kubernetes.deployments import server_yaml

    if given["args"]:
        raise click.UsageError(f"a served model takes no arguments: {' '.join(given['args'])}")
    engine = engine_called("kubernetes")
    order = serve_options.order(model_source.find(given["target"], engine), engine, given)
    render = server_yaml.deployment if form == "deployment" else server_yaml.inference_service
    rendered = render(order, given["name"])
    if as_json:
        print_json({"apiVersion": "v1", "kind": "List", "items": rendered.objects})
    else:
        print_document(rendered.text)
